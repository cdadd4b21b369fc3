//! Session settings that SQL can read and change: `SET ebbtide.fast_paths = false`, `SHOW ebbtide.fast_paths`.

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{Result, config_datafusion_err, config_err};
use std::any::Any;

/// The settings, in the form that DataFusion stores.
#[derive(Debug, Clone)]
pub(crate) struct EbbtideOptions {
    /// Whether the engine answers aggregates, and plans of one table go through fewer rules. Default: true. Results are
    /// the same either way.
    fast_paths: bool,
    /// Whether rows are skipped by the texts that they must contain: false after `SET ebbtide.fast_paths = false`.
    text_filters: bool,
}

#[cfg(feature = "workers")]
impl EbbtideOptions {
    /// These settings for statements whose parts are sent to workers.
    pub(crate) fn without_fast_paths(config: &ConfigOptions) -> EbbtideOptions {
        EbbtideOptions { fast_paths: false, text_filters: text_filters(config) }
    }
}

impl Default for EbbtideOptions {
    fn default() -> Self {
        EbbtideOptions { fast_paths: true, text_filters: true }
    }
}

impl ConfigExtension for EbbtideOptions {
    const PREFIX: &'static str = "ebbtide";
}

impl ExtensionOptions for EbbtideOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "fast_paths" => {
                self.fast_paths = value
                    .to_lowercase()
                    .parse()
                    .map_err(|_| config_datafusion_err!("ebbtide.fast_paths is true or false, not '{value}'"))?;
                self.text_filters = self.fast_paths;
                Ok(())
            }
            _ => config_err!("there is no setting 'ebbtide.{key}'; available: ebbtide.fast_paths"),
        }
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        vec![ConfigEntry {
            key: "ebbtide.fast_paths".to_owned(),
            value: Some(self.fast_paths.to_string()),
            description: "Whether the engine answers aggregates, plans of one table go through fewer rules, and n-gram filters are used",
        }]
    }
}

/// Whether a statement may take the fast paths.
pub(crate) fn fast_paths(config: &ConfigOptions) -> bool {
    config.extensions.get::<EbbtideOptions>().is_none_or(|options| options.fast_paths)
}

/// Whether a statement skips rows by the texts that they must contain.
pub(crate) fn text_filters(config: &ConfigOptions) -> bool {
    config.extensions.get::<EbbtideOptions>().is_none_or(|options| options.text_filters)
}
