//! Lists in pages: a limit, and a cursor that only the service understands.

use model::{Refusal, RunId, Sha256};
use serde::{Deserialize, Deserializer, Serialize};

/// The most items of a page.
pub const MAX_LIMIT: u32 = 1000;
/// Items of a page where the caller names no number.
pub const DEFAULT_LIMIT: u32 = 100;

/// Which page of a list to tell.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    /// At most so many items. Taken as 1,000 where it is more. A page also ends when its items have 4 MiB.
    #[serde(deserialize_with = "number_or_most")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `nextCursor` of the page before; the first page where it is missing.
    cursor: Option<String>,
}

/// A number of any length; one that no limit comes near to is as good as the largest.
fn number_or_most<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let raw = String::deserialize(from)?;
    if raw.is_empty() || !raw.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(serde::de::Error::custom(format!("`{}` is no number", raw.escape_debug())));
    }
    Ok(Some(raw.parse().unwrap_or(u32::MAX)))
}

/// What a cursor belongs to: it leads on in its own list alone.
#[derive(Clone, Copy, Debug)]
pub enum List<'a> {
    /// The runs.
    Runs,
    /// The approvals.
    Approvals,
    /// The records of all runs, and the stream of them.
    Audit,
    /// The records of one run.
    RunAudit(&'a RunId),
}

impl List<'_> {
    /// What its cursors begin with.
    fn mark(self) -> String {
        match self {
            Self::Runs => "r".to_owned(),
            Self::Approvals => "a".to_owned(),
            Self::Audit => "c".to_owned(),
            // Enough of a hash to tell runs apart; nothing is kept from anybody by it.
            Self::RunAudit(run) => format!("s{}", &Sha256::of(run.as_str().as_bytes()).to_string()[..8]),
        }
    }
}

impl Paging {
    /// The limit, and where to begin in `list`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn check(&self, list: List<'_>) -> Result<(u32, Option<Cursor>), Refusal> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
        if limit == 0 {
            return Err(Refusal::invalid("`limit` is 0", "Give 1 to 1,000, or leave it out for 100."));
        }
        Ok((limit, self.cursor.as_deref().map(|raw| Cursor::parse(raw, list)).transpose()?))
    }
}

/// Where the next page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(i64);

/// One page of a list.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Give it as `cursor` for the next page; missing on the last one. A page may have fewer items than `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl Cursor {
    /// Behind `position`.
    pub fn after(position: i64) -> Self {
        Self(position)
    }

    /// The position that the next page begins behind.
    pub fn position(self) -> i64 {
        self.0
    }

    /// Parses what [`Page::next_cursor`] held in `list`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn parse(raw: &str, list: List<'_>) -> Result<Self, Refusal> {
        let digits =
            raw.strip_prefix(&list.mark()).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let position = digits.and_then(|digits| u64::from_str_radix(digits, 36).ok());
        let position = position.and_then(|position| i64::try_from(position).ok());
        position.map(Self).ok_or_else(|| {
            Refusal::invalid(
                "`cursor` is none of this list",
                "Give the nextCursor of the page before in the same list, or leave it out.",
            )
        })
    }

    /// What callers of `list` get.
    pub fn to_text(self, list: List<'_>) -> String {
        const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let mut rest = self.0.unsigned_abs();
        let mut digits = Vec::new();
        loop {
            digits.push(char::from(DIGITS[(rest % 36) as usize]));
            rest /= 36;
            if rest == 0 {
                break;
            }
        }
        list.mark().chars().chain(digits.into_iter().rev()).collect()
    }
}

impl<T> Page<T> {
    /// Makes a page of `list` from a page of the ledger, each item with its position.
    pub fn of(found: ledger::Page<(i64, T)>, list: List<'_>) -> Self {
        let last = found.last().map(|(position, _)| Cursor::after(*position).to_text(list));
        let next_cursor = last.filter(|_| found.more);
        Self { items: found.into_iter().map(|(_, item)| item).collect(), next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_parses_what_it_prints_and_nothing_else() {
        let (one, other) = (RunId::parse("one").unwrap(), RunId::parse("other").unwrap());
        let lists = [List::Runs, List::Approvals, List::Audit, List::RunAudit(&one), List::RunAudit(&other)];
        for position in [0, 1, 35, 36, 1_000_000, i64::MAX] {
            let cursor = Cursor::after(position);
            for (at, list) in lists.into_iter().enumerate() {
                for (place, wanted) in lists.into_iter().enumerate() {
                    let parsed = Cursor::parse(&cursor.to_text(list), wanted);
                    assert_eq!(parsed.ok(), (at == place).then_some(cursor), "{list:?} in {wanted:?}");
                }
            }
        }
        for bad in ["", "c", "1", "c-1", "c+1", "c_", "cé", "czzzzzzzzzzzzzzzz"] {
            assert!(Cursor::parse(bad, List::Audit).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_a_page_with_more_behind_it_has_a_cursor() {
        let found = |more| ledger::Page { items: vec![(1, 1), (2, 2)], more };
        assert_eq!(Page::of(found(false), List::Runs).next_cursor, None);
        let page = Page::of(found(true), List::Runs);
        assert_eq!((page.items, page.next_cursor), (vec![1, 2], Some(Cursor::after(2).to_text(List::Runs))));
    }
}
