use super::*;

fn claim() -> Claim {
    let [database, writer, process] = ["d", "e", "f"].map(|digit| digit.repeat(32));
    Claim { epoch: 7, database, writer, process, at: Timestamp::EPOCH }
}

#[test]
fn a_claim_is_read_as_it_was_written_and_no_changed_byte_or_other_name_passes() {
    let good = claim().encode().unwrap();
    assert_eq!(Claim::decode(&good, 7).unwrap(), claim());
    let error = Claim::decode(&good, 8).unwrap_err().to_string();
    assert!(error.contains("epochs/0000000008") && error.contains("copy of that of epoch 7"), "{error}");
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 1;
        // The name of the checksum may be damaged: then it is no checksum, and the rest is as it was.
        let found = Claim::decode(&bad, 7);
        assert!(found.is_err() || (at >= good.len() - CRC_BYTES && found == Ok(claim())), "byte {at}: {found:?}");
    }
}

#[test]
fn a_claim_of_an_earlier_build_has_no_checksum() {
    assert_eq!(Claim::decode(&serde_json::to_vec(&claim()).unwrap(), 7).unwrap(), claim());
}
