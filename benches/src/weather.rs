//! Recorded weather as Arrow batches in the order of arrival: by time, then by station as in the files.

use crate::Result;
use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringViewArray, TimestampMillisecondArray};
use bson::DateTime;
use bson::raw::{CString, RawDocumentBuf, cstr};
use ebbtide::fs::{Fs, RealFs};
use ebbtide::ttl::{Precision, Timestamp};
use flate2::read::MultiGzDecoder;
use std::path::Path;
use std::sync::Arc;

/// The files of INMET, the Brazilian weather service, if they are available.
const INMET: [&str; 3] = ["inmet_2024_CO.csv.gz", "inmet_2024_N.csv.gz", "inmet_2024_S.csv.gz"];
/// The fixture in the repository.
const FIXTURE: &str = "fixtures/weather/nyc_2013_hourly.csv.gz";

/// Recorded measurements in the order of arrival.
#[derive(Debug, Default)]
pub struct Weather {
    /// Their source, for the report.
    pub source: String,
    /// Names of the stations, in the order of the files.
    pub stations: Vec<String>,
    /// Number of stations in each file, that is, in each region.
    pub regions: Vec<usize>,
    /// Names of the fields.
    pub fields: Vec<String>,
    /// The station of each row.
    station: Vec<u32>,
    /// The time of each row in milliseconds.
    time: Vec<i64>,
    /// The values of each field, one per row.
    values: Vec<Vec<Option<f64>>>,
    scale: usize,
}

impl Weather {
    /// Reads the INMET files in `dir` (`../shared/data/weather` from the project's root if `None`), or else the
    /// fixture. With a scale above one, every station occurs that many times under new names, with the recorded values.
    ///
    /// # Errors
    /// If there is no data, or it cannot be read.
    pub fn load(root: &Path, dir: Option<&Path>, scale: usize) -> Result<Self> {
        let fs = RealFs::new();
        let dir = dir.map_or_else(|| root.join("../shared/data/weather"), Path::to_owned);
        let mut paths = Vec::new();
        for name in INMET {
            paths.extend(Some(dir.join(name)).filter(|path| fs.exists(path).unwrap_or(false)));
        }
        let mut weather = Weather { scale, ..Weather::default() };
        weather.source = "INMET 2024, regions CO, N and S, hourly".to_owned();
        if paths.len() < INMET.len() {
            paths = vec![root.join(FIXTURE)];
            weather.source = format!("the fixture {FIXTURE}, since the INMET files are not in {}", dir.display());
        }
        for path in paths {
            weather.read(&path, &fs.read(&path)?)?;
        }
        weather.sort();
        Ok(weather)
    }

    fn read(&mut self, path: &Path, gzip: &[u8]) -> Result<()> {
        let mut csv = csv::Reader::from_reader(MultiGzDecoder::new(gzip));
        let fields: Vec<String> = csv.headers()?.iter().skip(2).map(str::to_owned).collect();
        if self.fields.is_empty() {
            self.values = vec![Vec::new(); fields.len()];
            self.fields = fields;
        } else if self.fields != fields {
            return Err(format!("{} has different columns than the files before it", path.display()).into());
        }
        let before = self.stations.len();
        let mut record = csv::StringRecord::new();
        while csv.read_record(&mut record)? {
            if self.stations.last().is_none_or(|last| *last != record[0]) {
                self.stations.push(record[0].to_owned());
            }
            self.station.push(u32::try_from(self.stations.len() - 1)?);
            let time = Timestamp::parse(&record[1])?.to_units(Precision::Ms).ok_or("a time out of range")?;
            self.time.push(time);
            for (column, text) in self.values.iter_mut().zip(record.iter().skip(2)) {
                column.push(if text.is_empty() { None } else { Some(text.parse()?) });
            }
        }
        self.regions.push(self.stations.len() - before);
        Ok(())
    }

    fn sort(&mut self) {
        let mut order: Vec<u32> = (0..).take(self.time.len()).collect();
        order.sort_by_key(|row| (self.time[*row as usize], self.station[*row as usize]));
        let order = || order.iter().map(|row| *row as usize);
        self.time = order().map(|row| self.time[row]).collect();
        self.station = order().map(|row| self.station[row]).collect();
        for column in &mut self.values {
            *column = order().map(|row| column[row]).collect();
        }
    }

    /// Number of rows, including the scale.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.time.len() * self.scale
    }

    /// Number of values that are present, without times and stations, including the scale.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values.iter().flatten().flatten().count() * self.scale
    }

    /// Number of stations, including the scale.
    #[must_use]
    pub fn series(&self) -> usize {
        self.stations.len() * self.scale
    }

    /// The first and the last time, in milliseconds.
    #[must_use]
    pub fn span(&self) -> (i64, i64) {
        (self.time.first().copied().unwrap_or(0), self.time.last().copied().unwrap_or(0))
    }

    /// The name of a station's copy.
    fn name(&self, station: u32, copy: usize) -> String {
        let name = &self.stations[station as usize];
        if copy == 0 { name.clone() } else { format!("{name}-{copy}") }
    }

    /// The rows as batches: `time`, `station`, then the fields, all doubles.
    ///
    /// # Errors
    /// None is expected.
    pub fn batches(&self, rows: usize) -> Result<Vec<RecordBatch>> {
        // Copies of a row follow each other.
        let all: Vec<(usize, usize)> =
            (0..self.time.len()).flat_map(|row| (0..self.scale).map(move |copy| (row, copy))).collect();
        all.chunks(rows).map(|rows| self.batch(rows)).collect()
    }

    fn batch(&self, rows: &[(usize, usize)]) -> Result<RecordBatch> {
        let time = TimestampMillisecondArray::from_iter_values(rows.iter().map(|(row, _)| self.time[*row]));
        let names = rows.iter().map(|(row, copy)| self.name(self.station[*row], *copy));
        let mut columns: Vec<(&str, ArrayRef)> = vec![
            ("time", Arc::new(time.with_timezone("UTC"))),
            ("station", Arc::new(StringViewArray::from_iter_values(names))),
        ];
        for (name, values) in self.fields.iter().zip(&self.values) {
            let column: Float64Array = rows.iter().map(|(row, _)| values[*row]).collect();
            columns.push((name, Arc::new(column)));
        }
        // Nullable even if no value is null: all batches have the same schema.
        let columns = columns.into_iter().map(|(name, column)| (name, column, name != "time"));
        Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
    }

    /// The rows as documents of BSON, without the fields that have no value.
    pub fn documents(&self) -> impl Iterator<Item = Result<RawDocumentBuf>> {
        let names: Vec<Result<CString>> =
            self.fields.iter().map(|name| Ok(CString::try_from(name.as_str())?)).collect();
        let document = move |row: usize, copy: usize| {
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("time"), DateTime::from_millis(self.time[row]));
            document.append(cstr!("station"), self.name(self.station[row], copy));
            for (name, values) in names.iter().zip(&self.values) {
                let name = name.as_ref().map_err(ToString::to_string)?;
                if let Some(value) = values[row] {
                    document.append(name, value);
                }
            }
            Ok(document)
        };
        (0..self.time.len())
            .flat_map(|row| (0..self.scale).map(move |copy| (row, copy)))
            .map(move |(row, copy)| document(row, copy))
    }

    /// The number of rows after an instant in milliseconds.
    #[must_use]
    pub fn rows_after(&self, instant: i64) -> usize {
        (self.time.len() - self.time.partition_point(|time| *time <= instant)) * self.scale
    }

    /// For each station, how many of its rows are not older than an instant in milliseconds.
    #[must_use]
    pub fn rows_since(&self, instant: i64) -> Vec<usize> {
        let mut rows = vec![0; self.stations.len()];
        let first = self.time.partition_point(|time| *time < instant);
        self.station[first..].iter().for_each(|station| rows[*station as usize] += 1);
        rows
    }

    /// The first rows as lines of JSON, as a program would receive documents over the network.
    #[must_use]
    pub fn json_lines(&self, rows: usize) -> Vec<String> {
        let line = |row: usize| {
            let mut object = serde_json::Map::new();
            let time = Timestamp::from_units(self.time[row], Precision::Ms).to_string();
            object.insert("time".to_owned(), serde_json::json!({ "$date": time }));
            object.insert("station".to_owned(), self.stations[self.station[row] as usize].clone().into());
            for (name, values) in self.fields.iter().zip(&self.values) {
                object.extend(values[row].map(|v| (name.clone(), v.into())));
            }
            serde_json::Value::Object(object).to_string()
        };
        (0..self.time.len().min(rows)).map(line).collect()
    }
}
