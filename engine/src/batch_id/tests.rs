use super::*;

const A: BatchId = BatchId { source: 1, number: 1 };
const B: BatchId = BatchId { source: 1, number: 2 };

fn trail(ids: &[Option<BatchId>]) -> IdTrail {
    let mut trail = IdTrail::default();
    ids.iter().for_each(|id| trail.add(*id));
    trail
}

#[test]
fn a_run_of_inserts_is_the_same_wherever_it_is_cut() {
    let ids = [None, Some(A), None, None, Some(B), Some(A), None];
    for before in [None, Some(LastBatch { id: B, is_newest: true }), Some(LastBatch { id: B, is_newest: false })] {
        for end in 0..=ids.len() {
            let whole = trail(&ids[..end]).after(before);
            for cut in 0..=end {
                let (first, second) = (trail(&ids[..cut]), trail(&ids[cut..end]));
                assert_eq!(second.after(first.after(before)), whole, "{cut} of {end}");
                let mut joined = first;
                joined.append(second);
                assert_eq!(joined.after(before), whole, "{cut} of {end}");
            }
        }
    }
    assert_eq!(trail(&[Some(A), Some(B)]).after(None), Some(LastBatch { id: B, is_newest: true }));
    assert_eq!(trail(&[Some(A), None]).after(None), Some(LastBatch { id: A, is_newest: false }));
    assert_eq!(trail(&[None]).after(None), None);
}
