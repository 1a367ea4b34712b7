//! Parts of the program that a cargo feature of `workspaced` adds.

/// Whether traces can be sent.
pub(crate) const HAS_OTLP: bool = cfg!(feature = "otlp");
/// Whether stores can be opened.
pub(crate) const HAS_OBJECT_STORE: bool = cfg!(feature = "object-store");

/// What is wrong with a setting of traces where they cannot be sent.
pub const NO_OTLP: &str = "this build has no OTLP exporter; use a release, the image, or build with `--features otlp`";
/// What is wrong with a setting of a store where none can be opened.
pub const NO_OBJECT_STORE: &str =
    "this build has no object store; use a release, the image, or build with `--features object-store`";
