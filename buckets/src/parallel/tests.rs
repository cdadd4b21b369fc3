use super::on_threads;
use std::sync::Mutex;

#[test]
fn results_are_in_order_on_any_number_of_threads() {
    for threads in [0, 1, 3, 8] {
        let squares = on_threads(threads, 100, &|| true, |at| Ok::<_, ()>(at * at));
        assert_eq!(squares, Ok((0..100).map(|at| at * at).collect()), "{threads} threads");
    }
}

#[test]
fn nothing_is_begun_after_an_error() {
    let begun = Mutex::new(Vec::new());
    let result = on_threads(1, 100, &|| true, |at| {
        begun.lock().unwrap().push(at);
        if at == 3 { Err(at) } else { Ok(()) }
    });
    assert_eq!((result, begun.into_inner().unwrap()), (Err(3), vec![0, 1, 2, 3]));
}
