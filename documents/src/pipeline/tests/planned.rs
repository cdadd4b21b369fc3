//! Groups from figures of windows.

use super::*;
use crate::{FigureValue, WindowFigures};
use std::cell::Cell;

/// A window of one measurement for each meta.
struct Windows(Vec<Option<RawBson>>);

impl WindowFigures for Windows {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn start_ms(&self, _: usize) -> i64 {
        0
    }

    fn meta(&self, window: usize) -> usize {
        window
    }

    fn metas(&self) -> &[Option<RawBson>] {
        &self.0
    }

    fn figure(&self, _: usize, _: usize) -> Option<FigureValue> {
        Some(FigureValue::Int(1))
    }
}

fn plan(id: RawBson) -> crate::GroupPlan {
    let stages = rawdoc! { "p": [{ "$group": { "_id": id, "n": { "$sum": 1 } } }] };
    Pipeline::parse(stages.get_array("p").unwrap()).unwrap().plan_group("t", Some("m")).unwrap()
}

#[test]
fn groups_from_windows_can_be_stopped() {
    let windows = [Windows((0..10_000).map(|meta| Some(RawBson::Int32(meta % 7))).collect())];
    let plan = plan(RawBson::String("$m".to_owned()));
    let groups = plan.fold(&windows, 0, &|| false).unwrap().unwrap();
    assert_eq!((groups.len(), &groups[0]), (7, &rawdoc! { "_id": 0, "n": 1429 }));
    for after in [0, 5, 12] {
        let asked = Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() > after
        };
        assert_eq!(plan.fold(&windows, 0, &stop).unwrap_err().code, 50, "{after}");
    }
}

#[test]
fn the_ids_of_windows_can_be_stopped() {
    let slow = rawdoc! { "$reduce": {
        "input": { "$range": [0, 50_000] }, "initialValue": "$m", "in": { "$add": ["$$value", 1] },
    } };
    let plan = plan(RawBson::Document(slow));
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    assert_eq!(plan.fold(&[Windows(vec![Some(RawBson::Int32(1))])], 0, &stop).unwrap_err().code, 50);
    assert_eq!(plan.meta_key(Some(RawBson::Int32(1)), &|| true).unwrap_err().code, 50);
}
