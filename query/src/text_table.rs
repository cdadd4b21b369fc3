//! How text tables such as CSV are read, by `read_csv` in queries and by the import of the command line.
//!
//! [`encoding`] converts bytes to UTF-8, [`outline`] finds delimiter and header in the first lines, [`split`] splits the
//! text into records, [`infer`] infers the types of columns from their cells, and [`mod@column`] converts the cells. Both ways
//! in use all of it, so that the same cells have the same types and values.

pub mod blanks;
pub mod cells;
pub mod column;
pub mod encoding;
pub mod infer;
pub mod outline;
pub mod plain_time;
pub mod repeated_hours;
pub mod split;
pub mod time_forms;
pub mod times;
