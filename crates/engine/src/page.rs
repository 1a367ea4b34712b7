//! Pagination: a limit, and an opaque cursor.

pub(crate) mod conditions;

use model::{Refusal, RunId, Sha256};
use serde::{Deserialize, Deserializer, Serialize};

/// The maximum number of items of a page.
pub const MAX_LIMIT: u32 = 1000;
/// The default number of items of a page.
pub const DEFAULT_LIMIT: u32 = 100;

/// The page of a list.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    /// The maximum number of items. Values over 1,000 are taken as 1,000. A page also ends when its items have 4 MiB.
    #[serde(deserialize_with = "saturating_number")]
    #[param(minimum = 1, default = 100)]
    limit: Option<u32>,
    /// The `nextCursor` of the previous page. Default: the first page.
    cursor: Option<String>,
}

/// Parses a number of any length. Numbers that are too large for the type are taken as its largest.
fn saturating_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let raw = String::deserialize(from)?;
    if raw.is_empty() || !raw.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(serde::de::Error::custom(format!("`{}` is not a whole number", raw.escape_debug())));
    }
    Ok(Some(raw.parse().unwrap_or(u32::MAX)))
}

/// A list.
#[derive(Clone, Copy, Debug)]
pub enum List<'a> {
    /// The runs.
    Runs,
    /// The approvals.
    Approvals,
    /// The operators.
    Operators,
    /// The records of all runs, and the stream of them.
    Audit,
    /// The records of one run.
    RunAudit(&'a RunId),
    /// The deliveries of a webhook, by its name.
    Deliveries(&'a str),
    /// The tokens of one run.
    Tokens(&'a RunId),
}

/// A list with its filter and order, to which its cursors belong.
#[derive(Clone, Debug)]
pub struct ListKey(String);

impl List<'_> {
    /// Returns the list without a filter.
    pub fn unfiltered(self) -> ListKey {
        ListKey(self.prefix())
    }

    /// Returns the list with `filter`, which includes the order.
    pub fn filtered<F: Serialize + Default>(self, filter: &F) -> ListKey {
        // Strings, booleans and lists always serialise.
        let text = |filter: &F| serde_json::to_string(filter).unwrap_or_default();
        let (text, default) = (text(filter), text(&F::default()));
        if text == default { self.unfiltered() } else { ListKey(format!("{}_{}_", self.prefix(), short_hash(&text))) }
    }

    fn prefix(self) -> String {
        match self {
            Self::Runs => "r".to_owned(),
            Self::Approvals => "a".to_owned(),
            Self::Operators => "o".to_owned(),
            Self::Audit => "c".to_owned(),
            Self::RunAudit(run) => format!("s{}", short_hash(run.as_str())),
            Self::Deliveries(webhook) => format!("w{}", short_hash(webhook)),
            Self::Tokens(run) => format!("t{}", short_hash(run.as_str())),
        }
    }
}

/// Characters at the end of a cursor by which a changed one is detected.
const CHECK_CHARS: usize = 4;

/// Returns enough of a hash to detect cursors of other lists, and changed ones. It protects nothing.
fn short_hash(text: &str) -> String {
    Sha256::of(text.as_bytes()).to_string().chars().take(8).collect()
}

impl Paging {
    /// Returns the limit and the cursor in `list`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn check(&self, list: &ListKey) -> Result<(u32, Option<Cursor>), Refusal> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
        if limit == 0 {
            return Err(Refusal::invalid("`limit` is 0", "Give 1 to 1,000, or omit it for 100."));
        }
        Ok((limit, self.cursor.as_deref().map(|raw| Cursor::parse(raw, list)).transpose()?))
    }
}

/// The position after which a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(i64);

/// One page of a list.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// The `cursor` of the next page. Omitted on the last page. Other pages too may have fewer items than `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl Cursor {
    /// Creates the cursor of a page after `position`.
    pub fn after(position: i64) -> Self {
        Self(position)
    }

    /// Returns the position after which the page begins.
    pub fn position(self) -> i64 {
        self.0
    }

    /// Parses a [`Page::next_cursor`] of `list`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn parse(raw: &str, list: &ListKey) -> Result<Self, Refusal> {
        let rest = raw.strip_prefix(&list.0);
        let digits = rest.and_then(|rest| rest.get(..rest.len().checked_sub(CHECK_CHARS)?));
        let position = digits.and_then(|digits| i64::from_str_radix(digits, 36).ok());
        position.map(Self).filter(|cursor| cursor.to_text(list) == raw).ok_or_else(|| {
            Refusal::invalid(
                "`cursor` is invalid or belongs to another list, filter or order",
                "Give the nextCursor of the previous page of the same list with the same filters and order, or omit it.",
            )
        })
    }

    /// Returns the text of the cursor in `list`.
    pub fn to_text(self, list: &ListKey) -> String {
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
        let mut text: String = list.0.chars().chain(digits.into_iter().rev()).collect();
        let check = short_hash(&text);
        text.extend(check.chars().take(CHECK_CHARS));
        text
    }
}

impl<T> Page<T> {
    /// Converts a page of the ledger, which has the position of each item, to a page of `list`.
    pub fn of(found: ledger::LedgerPage<(i64, T)>, list: &ListKey) -> Self {
        let next_cursor = found.next().map(|position| Cursor::after(position).to_text(list));
        Self { items: found.into_iter().map(|(_, item)| item).collect(), next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_parses_what_it_prints_and_nothing_else() {
        let (one, other) = (RunId::parse("one").unwrap(), RunId::parse("other").unwrap());
        let lists =
            [List::Runs, List::Approvals, List::Operators, List::Audit, List::RunAudit(&one), List::RunAudit(&other)];
        let open = ledger::RunFilter::from(model::RunState::Open);
        let newest_first = ledger::RunFilter { newest_first: true, ..ledger::RunFilter::default() };
        let filtered = [&open, &newest_first].map(|filter| List::Runs.filtered(filter));
        let lists: Vec<_> = lists.into_iter().map(List::unfiltered).chain(filtered).collect();
        for position in [0, 1, 35, 36, 1_000_000, i64::MAX] {
            let cursor = Cursor::after(position);
            for (index, list) in lists.iter().enumerate() {
                for (other_index, other) in lists.iter().enumerate() {
                    let parsed = Cursor::parse(&cursor.to_text(list), other);
                    assert_eq!(parsed.ok(), (index == other_index).then_some(cursor), "{list:?} in {other:?}");
                }
            }
        }
        let audit = List::Audit.unfiltered();
        let text = Cursor::after(36).to_text(&audit);
        let changed =
            [format!("{text}0"), text.replacen('c', "c0", 1), text.replacen("10", "11", 1), text.to_uppercase()];
        let bad =
            ["", "c", "1", "c-1", "c+1", "c_", "cé", "cééé", "czzzzzzzzzzzzzzzz", "corrupt", "c10", "c1", "c-110000"];
        for bad in bad.into_iter().chain(changed.iter().map(String::as_str)) {
            assert!(Cursor::parse(bad, &audit).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_a_page_that_is_not_the_last_has_a_cursor() {
        let found = |more| ledger::LedgerPage { items: vec![(1, 1), (2, 2)], more, resume: None };
        assert_eq!(Page::of(found(false), &List::Runs.unfiltered()).next_cursor, None);
        let page = Page::of(found(true), &List::Runs.unfiltered());
        assert_eq!(
            (page.items, page.next_cursor),
            (vec![1, 2], Some(Cursor::after(2).to_text(&List::Runs.unfiltered())))
        );
    }
}
