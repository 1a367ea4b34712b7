//! Settings of the stores: of the archives of closed runs, and of objects.

#![expect(clippy::disallowed_types, reason = "stores are outside of the data folder")]

use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

use crate::error::ConfigError;
use crate::features::{HAS_OBJECT_STORE, NO_OBJECT_STORE};
use crate::settings::Settings;

/// The longest address of a store, in bytes. Answers contain it.
const MAX_URL_BYTES: usize = 1024;

/// When closed runs are archived, and to which store.
#[derive(Clone, Debug)]
pub struct ArchiveConfig {
    /// The minimum time since a run was closed.
    pub after: Duration,
    /// The store.
    pub to: StoreTarget,
}

/// A store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreTarget {
    /// A folder.
    Folder(PathBuf),
    /// A bucket of S3. The access is configured by the environment variables of AWS.
    Bucket {
        /// Its name.
        bucket: String,
        /// What the names of all objects begin with; without `/` at its ends.
        prefix: String,
    },
}

impl ArchiveConfig {
    /// Checks the settings; `None` if closed runs stay.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(settings: &Settings) -> Result<Option<Self>, ConfigError> {
        let given = |setting: &Option<String>| setting.clone().filter(|text| !text.is_empty());
        let to = given(&settings.archive_to).map(|to| StoreTarget::parse(&to)).transpose();
        let to = to.map_err(|why| ConfigError(format!("--archive-to: {why}")))?;
        match (given(&settings.archive_after), to) {
            (None, _) => Ok(None),
            (Some(_), None) => {
                Err(ConfigError("--archive-after: give the store of the archives by --archive-to as well".to_owned()))
            }
            (Some(after), Some(to)) => {
                let bad = |why: String| ConfigError(format!("--archive-after `{after}`: {why}"));
                Ok(Some(Self { after: duration(&after).map_err(bad)?, to }))
            }
        }
    }
}

/// The store of bases and large contents.
#[derive(Clone, Debug)]
pub struct ObjectStoreConfig {
    /// The store.
    pub to: StoreTarget,
    /// How old an object that nothing refers to must be before it is deleted.
    pub grace: Duration,
}

impl ObjectStoreConfig {
    /// The default of `grace`.
    const GRACE: Duration = Duration::from_hours(24);

    /// Checks the settings; `None` if there is no store.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that cannot be used.
    pub fn check(settings: &Settings) -> Result<Option<Self>, ConfigError> {
        let grace = match settings.object_store_grace.as_deref().filter(|raw| !raw.is_empty()) {
            None => Self::GRACE,
            Some(raw) => duration(raw).map_err(|why| ConfigError(format!("--object-store-grace `{raw}`: {why}")))?,
        };
        let url = settings.object_store_url.as_deref().filter(|url| !url.is_empty());
        url.map(|url| Ok(Self { to: StoreTarget::of_url(url)?, grace })).transpose()
    }
}

impl StoreTarget {
    /// Parses the value of `--object-store-url`: `file:///FOLDER` of an existing folder, or `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn of_url(url: &str) -> Result<Self, ConfigError> {
        let parsed = match url.strip_prefix("file://") {
            Some(folder) if folder.starts_with('/') => Self::parse(folder),
            None if url.starts_with("s3://") => Self::parse(url),
            Some(_) | None => Err(format!("`{url}`: expected file:///FOLDER or s3://BUCKET/PREFIX")),
        };
        parsed.map_err(|why| ConfigError(format!("--object-store-url: {why}")))
    }

    /// Parses an existing folder, or `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or that this build has no stores.
    pub fn parse(raw: &str) -> Result<Self, String> {
        Self::parse_in(HAS_OBJECT_STORE, raw)
    }

    fn parse_in(has_object_store: bool, raw: &str) -> Result<Self, String> {
        if !has_object_store {
            return Err(NO_OBJECT_STORE.to_owned());
        }
        if raw.len() > MAX_URL_BYTES {
            return Err(format!("it is longer than {MAX_URL_BYTES} bytes"));
        }
        let Some(rest) = raw.strip_prefix("s3://") else {
            if raw.contains("://") {
                return Err(format!("`{raw}`: expected a folder or s3://BUCKET/PREFIX"));
            }
            let folder = std::fs::canonicalize(raw).map_err(|error| format!("`{raw}`: {error}: create the folder"))?;
            return if folder.is_dir() { Ok(Self::Folder(folder)) } else { Err(format!("`{raw}`: not a folder")) };
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte));
        if bucket.is_empty() || !is_plain(bucket) || !is_plain(prefix) || prefix.split('/').skip(1).any(str::is_empty) {
            return Err(format!("`{raw}`: expected s3://BUCKET/PREFIX with letters, digits, `-`, `.` and `_`"));
        }
        Ok(Self::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

/// Parses a duration such as `90d`, of at least a second. A day has 24 hours.
fn duration(raw: &str) -> Result<Duration, String> {
    let span: Span = raw.parse().map_err(|_| "expected a duration such as 90d, 12h or 30m".to_owned())?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|error| error.to_string())?;
    if duration < SignedDuration::from_secs(1) {
        return Err("expected at least 1s".to_owned());
    }
    Duration::try_from(duration).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("90d"), Ok(Duration::from_hours(90 * 24)));
        assert_eq!(duration("1d 12h"), Ok(Duration::from_hours(36)));
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        for bad in ["90", "", "soon", "0s", "-1d", "1y"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn stores_are_folders_and_buckets() {
        let bucket = |bucket: &str, prefix: &str| {
            Ok(StoreTarget::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
        };
        let parse = |raw| StoreTarget::parse_in(true, raw);
        assert_eq!(parse("s3://runs"), bucket("runs", ""));
        assert_eq!(parse("s3://runs/a/b/"), bucket("runs", "a/b"));
        assert!(matches!(parse("."), Ok(StoreTarget::Folder(_))));
        for bad in ["s3://", "s3:///a", "s3://a/b//c", "s3://a/b?c", "gs://a", "./missing-folder"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_build_without_stores_says_which_feature_has_them() {
        for url in ["s3://runs", "."] {
            let why = StoreTarget::parse_in(false, url).unwrap_err();
            assert!(why.starts_with("this build has no object store"), "{why}");
            assert!(why.ends_with("build with `--features object-store`"), "{why}");
        }
    }
}
