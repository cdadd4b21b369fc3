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
