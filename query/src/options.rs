//! Settings of a session that SQL reads and changes: `SET ebbtide.fast_paths = false`, `SHOW ebbtide.fast_paths`.

use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::extensions_options;

extensions_options! {
    /// The settings, as DataFusion keeps them.
    pub(crate) struct EbbtideOptions {
        /// Whether the engine answers aggregates from its bucket directories, and short statements are planned with fewer rules. Answers are the same without.
        pub fast_paths: bool, default = true
    }
}

impl ConfigExtension for EbbtideOptions {
    const PREFIX: &'static str = "ebbtide";
}

/// Whether a statement may take the fast paths.
pub(crate) fn fast_paths(config: &ConfigOptions) -> bool {
    config.extensions.get::<EbbtideOptions>().is_none_or(|options| options.fast_paths)
}
