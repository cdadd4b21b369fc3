use super::*;

#[test]
fn numbers_of_every_length_come_back_wherever_they_stand() {
    let lengths = (0..64).flat_map(|bits| [1_u64 << bits, (1 << bits) - 1, u64::MAX >> bits]);
    let numbers: Vec<u64> = lengths.chain([0, u64::MAX]).collect();
    let mut bytes = Vec::new();
    numbers.iter().for_each(|number| put_u64(&mut bytes, *number));
    let mut cursor = Cursor::new(&bytes);
    assert!(numbers.iter().all(|number| cursor.u64() == Ok(*number)));
    assert_eq!(cursor.at(), bytes.len());
    for number in numbers {
        let mut alone = Vec::new();
        put_u64(&mut alone, number);
        assert_eq!(Cursor::new(&alone).u64(), Ok(number), "at the end");
        let cut = &alone[..alone.len() - 1];
        assert!(Cursor::new(cut).u64().is_err(), "{number} cut short");
        put_i64(&mut alone, number.cast_signed());
        let mut cursor = Cursor::new(&alone);
        assert_eq!((cursor.u64(), cursor.i64()), (Ok(number), Ok(number.cast_signed())));
    }
}

#[test]
fn what_is_no_number_is_refused() {
    let mut large = Vec::new();
    put(&mut large, u128::from(u64::MAX) + 1);
    for bytes in [large, vec![0x80; 7], vec![0x80; 8], vec![0x80; 40], vec![0xFF; 40]] {
        assert!(Cursor::new(&bytes).u64().is_err(), "{bytes:?}");
    }
}

#[test]
fn lists_of_numbers_come_back_whatever_is_next_to_what() {
    let runs = |parts: &[(u64, usize)]| -> Vec<u64> {
        parts.iter().flat_map(|(number, times)| std::iter::repeat_n(*number, *times)).collect()
    };
    let long = u64::MAX;
    let lists = [
        runs(&[(0, 20)]),
        runs(&[(127, 9), (0, 3)]),
        runs(&[(0, 12), (128, 1), (0, 12)]),
        runs(&[(3_600_000, 30), (1, 2), (3_600_000, 2), (3_600_001, 5)]),
        runs(&[(1 << 55, 4), ((1 << 56) - 1, 4), (1 << 56, 4), (long, 4), (1, 9)]),
        runs(&[(300, 3), (44, 3), (2, 3), (300, 1)]),
        Vec::new(),
    ];
    for list in lists {
        for behind in [0, 1, 9] {
            let mut bytes = Vec::new();
            list.iter().for_each(|number| put_u64(&mut bytes, *number));
            let end = bytes.len();
            bytes.extend(vec![0x80; behind]);
            let (mut cursor, mut back) = (Cursor::new(&bytes), Vec::new());
            assert_eq!(cursor.numbers(list.len(), |number| back.push(number)), Ok(()));
            assert_eq!((&back, cursor.at()), (&list, end));
            let mut cut = Cursor::new(&bytes[..end.saturating_sub(1)]);
            assert_eq!(cut.numbers(list.len(), drop).is_err(), !list.is_empty(), "{list:?} cut short");
        }
    }
}
