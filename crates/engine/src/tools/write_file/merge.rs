//! Merging a write into a file that has changed meanwhile.

use model::{LogicalPath, MAX_MERGE_BYTES, MergeFault, Refusal, merge};
use serde::{Deserialize, Serialize};

use crate::tool::earlier_calls::StoredContent;

/// What a write does if the file has changed since the version that the caller expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnConflict {
    /// It is refused.
    #[default]
    Refuse,
    /// The change is merged, if both changes are of other lines.
    Merge,
}

/// Returns the bytes of the file at `path` with the change from `base` to `new` merged into `current`. `conflict` is the
/// refusal without a merge.
///
/// # Errors
///
/// `WRITE_CONFLICT`, with the regions that conflict, and why there is no merge.
pub(crate) fn merge_change(
    path: &LogicalPath,
    base: Option<&StoredContent>,
    current: &[u8],
    new: &str,
    conflict: &Refusal,
) -> Result<Vec<u8>, Refusal> {
    let refuse = |why: String| {
        let message = format!("`{path}` has changed since the expected version, and {why}");
        Refusal { message, ..conflict.clone() }
    };
    let too_large = |bytes: Option<u64>| {
        let why = format!("files of more than {MAX_MERGE_BYTES} bytes are not merged");
        refuse(why).with_details(|details| (details.limit, details.actual) = (Some(MAX_MERGE_BYTES), bytes))
    };
    let base = match base {
        Some(StoredContent::Bytes(base)) => base,
        Some(StoredContent::TooLarge) => return Err(too_large(None)),
        Some(StoredContent::Unknown) | None => {
            return Err(refuse("that version is not stored, so that the change cannot be merged".to_owned()));
        }
    };
    merge(base, current, new).map_err(|fault| match fault {
        MergeFault::TooLarge { bytes } => too_large(Some(bytes)),
        MergeFault::NotText => {
            refuse("one of the versions is not text, so that the change cannot be merged".to_owned())
        }
        MergeFault::NotEncodable => {
            refuse("`content` has characters that the file's encoding lacks, so that it cannot be merged".to_owned())
        }
        MergeFault::TooDifferent => refuse("the versions differ in too many lines to be merged".to_owned()),
        MergeFault::Conflicts { regions, count } => {
            let what = if count == 1 { "region was" } else { "regions were" };
            refuse(format!("{count} {what} changed in two ways")).with_details(|details| {
                details.conflict_regions = regions;
            })
        }
    })
}
