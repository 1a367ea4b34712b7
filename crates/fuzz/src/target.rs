//! The targets.

mod archive;
mod edit;
mod json;
mod patch;
mod path;

/// Something that takes any bytes.
#[derive(Debug)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Panics where a promise does not hold.
    pub run: fn(&[u8]),
    /// What its inputs are made of.
    pub words: &'static [&'static [u8]],
    /// Longer inputs tell nothing new.
    pub max_bytes: usize,
    /// How many mutations the tests try: about a second's worth.
    pub tries: usize,
}

/// Every target.
pub const TARGETS: [&Target; 5] = [&path::TARGET, &patch::TARGET, &edit::TARGET, &json::TARGET, &archive::TARGET];

/// The target called `name`.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Whether `path`, as text, lies beneath the root without a step up.
fn stays_beneath(path: &str) -> bool {
    !path.is_empty()
        && !path.starts_with('/')
        && !path.contains('\0')
        && path.split('/').all(|name| !matches!(name, "" | ".."))
}
