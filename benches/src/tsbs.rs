//! The data of TSBS cpu-only: hosts with ten tags and ten integer metrics that follow random walks between 0 and 100,
//! one row every ten seconds. Deterministic: the same seed gives the same rows on every machine.

use crate::Result;
use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringViewArray, StructArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field};
use std::sync::Arc;

/// 2016-01-01T00:00:00Z in milliseconds.
pub const START_MS: i64 = 1_451_606_400_000;
/// Ten seconds in milliseconds.
pub const STEP_MS: i64 = 10_000;
/// The metrics.
pub const FIELDS: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];
const TAGS: [&str; 10] = [
    "hostname",
    "region",
    "datacenter",
    "rack",
    "os",
    "arch",
    "team",
    "service",
    "service_version",
    "service_environment",
];
const SEED: u64 = 123;

/// A random number generator: SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next number.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.bits() % (limit.max(1) as u64)).unwrap_or(0)
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normally distributed with mean 0 and deviation 1, by the method of Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// The generator.
#[derive(Debug)]
pub struct Cpu {
    random: Random,
    tags: Vec<ArrayRef>,
    walks: Vec<[f64; 10]>,
    tick: i64,
}

impl Cpu {
    /// This many hosts at the start of their day.
    #[must_use]
    pub fn new(hosts: usize) -> Self {
        let mut random = Random::new(SEED);
        let tags = TAGS.iter().enumerate().map(|(at, _)| {
            let value = |host: usize| match at {
                0 => format!("host_{host}"),
                1 => ["us-east-1", "us-west-1", "us-west-2", "eu-west-1", "ap-south-1"][random.below(5)].to_owned(),
                2 => format!("zone-{}", ["a", "b", "c"][random.below(3)]),
                3 | 7 => random.below(if at == 3 { 100 } else { 20 }).to_string(),
                4 => ["Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"][random.below(3)].to_owned(),
                5 => ["x64", "x86"][random.below(2)].to_owned(),
                6 => ["SF", "NYC", "LON", "CHI"][random.below(4)].to_owned(),
                8 => random.below(2).to_string(),
                _ => ["production", "staging", "test"][random.below(3)].to_owned(),
            };
            Arc::new(StringViewArray::from_iter_values((0..hosts).map(value))) as ArrayRef
        });
        let tags = tags.collect();
        let mut random = Random::new(SEED + 1);
        let walks = (0..hosts).map(|_| std::array::from_fn(|_| random.unit() * 100.0)).collect();
        Cpu { random, tags, walks, tick: 0 }
    }

    /// The rows of the next ticks, all hosts of a tick together.
    ///
    /// # Errors
    /// None is expected.
    #[expect(clippy::cast_possible_truncation, reason = "the walks lie between 0 and 100")]
    pub fn ticks(&mut self, ticks: usize) -> Result<RecordBatch> {
        let hosts = self.walks.len();
        let mut times = Vec::with_capacity(ticks * hosts);
        let mut values: [Vec<i64>; 10] = std::array::from_fn(|_| Vec::with_capacity(ticks * hosts));
        for _ in 0..ticks {
            for walk in &mut self.walks {
                times.push(START_MS + self.tick * STEP_MS);
                for (field, value) in values.iter_mut().zip(walk.iter_mut()) {
                    *value = (*value + self.random.normal()).clamp(0.0, 100.0);
                    field.push(*value as i64);
                }
            }
            self.tick += 1;
        }
        let host = arrow::array::UInt32Array::from_iter_values((0..ticks).flat_map(|_| (0..).take(hosts)));
        let tags = self.tags.iter().map(|tag| arrow::compute::take(tag, &host, None));
        let tags = tags.collect::<std::result::Result<Vec<_>, _>>()?;
        let members: Vec<Field> = TAGS.iter().map(|name| Field::new(*name, DataType::Utf8View, true)).collect();
        let tags = StructArray::try_new(members.into(), tags, None)?;
        let mut columns: Vec<(&str, ArrayRef, bool)> = vec![
            ("time", Arc::new(TimestampMillisecondArray::from(times).with_timezone("UTC")), false),
            ("tags", Arc::new(tags), true),
        ];
        for (name, values) in FIELDS.iter().zip(values) {
            columns.push((name, Arc::new(Int64Array::from(values)) as Arc<dyn Array>, true));
        }
        Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
    }
}
