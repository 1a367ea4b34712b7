//! Conditions that several lists have: labels, times of creation, the order.

use std::fmt;

use model::{NOBODY, RUN_TOKEN_ACTOR, Refusal};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::clock::parse_time;

/// Maximum number of labels in a query.
const MAX_LABELS: usize = 16;

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// The oldest first.
    #[default]
    Asc,
    /// The newest first.
    Desc,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct OrderQuery {
    /// `asc`, the default: the oldest first; `desc`: the newest first. Items that are added while pages are read are on no
    /// further page of `desc`.
    #[param(inline)]
    order: Option<Order>,
}

impl OrderQuery {
    /// Whether the newest item comes first.
    pub fn is_newest_first(self) -> bool {
        self.order == Some(Order::Desc)
    }
}

/// Conditions on the time of creation.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct CreatedQuery {
    /// Only what was created after this time, RFC 3339.
    #[param(example = "2026-01-01T00:00:00Z")]
    created_after: Option<String>,
    /// Only what was created before this time, RFC 3339.
    created_before: Option<String>,
}

impl CreatedQuery {
    /// Returns both times as they are stored.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn times(&self) -> Result<(Option<String>, Option<String>), Refusal> {
        let after = time("createdAfter", self.created_after.as_deref())?;
        Ok((after, time("createdBefore", self.created_before.as_deref())?))
    }
}

/// Labels of a run.
#[derive(Clone, Debug, Default, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LabelQuery {
    /// Only runs with this label, as `name:value`; of a record, the label of its run. May be given several times, at most 16:
    /// all must match.
    #[param(value_type = Option<String>, example = "ticket:4711")]
    label: Vec<String>,
}

impl LabelQuery {
    /// Returns the labels.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn check(&self) -> Result<Vec<String>, Refusal> {
        let hint = "Give `label=name:value`, such as `label=ticket:4711`.";
        if self.label.len() > MAX_LABELS {
            let message = format!("`label` is given {} times; the limit is {MAX_LABELS}", self.label.len());
            return Err(Refusal::invalid(message, "Give fewer labels."));
        }
        match self.label.iter().find(|label| label.find(':').is_none_or(|at| at == 0)) {
            None => Ok(self.label.clone()),
            Some(bad) => {
                let message = format!("invalid `label` \"{}\": expected `name:value`", model::excerpt(bad, 100));
                Err(Refusal::invalid(message, hint))
            }
        }
    }
}

/// Collects every `label`. A derived implementation refuses the second one.
impl<'de> Deserialize<'de> for LabelQuery {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Labels;

        impl<'de> Visitor<'de> for Labels {
            type Value = LabelQuery;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("query parameters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LabelQuery, A::Error> {
                let mut label = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    if name == "label" {
                        label.push(value);
                    }
                }
                Ok(LabelQuery { label })
            }
        }

        from.deserialize_map(Labels)
    }
}

/// Parses a time, as it is stored. A query in which `+` is not encoded has a blank before the offset.
pub(crate) fn time(name: &str, raw: Option<&str>) -> Result<Option<String>, Refusal> {
    let hint = "Give a time such as `2026-01-01T00:00:00Z`.";
    let invalid = |_| Refusal::invalid(format!("`{name}` is not an RFC 3339 time"), hint);
    let parse = |raw: &str| {
        parse_time(raw).or_else(|error| match raw.rsplit_once(' ') {
            Some((time, offset)) if time.contains(':') => parse_time(&format!("{time}+{offset}")),
            Some(_) | None => Err(error),
        })
    };
    raw.map(parse).transpose().map_err(invalid)
}

/// Checks the start of a path: it is relative and has no `.`, `..` or empty component.
///
/// # Errors
///
/// `INVALID_REQUEST`.
pub(crate) fn check_path_prefix(prefix: &str) -> Result<(), Refusal> {
    let folders = prefix.strip_suffix('/').unwrap_or(prefix);
    if folders.split('/').all(|component| !matches!(component, "" | "." | "..")) {
        return Ok(());
    }
    let message = format!("invalid `pathPrefix` \"{}\"", model::excerpt(prefix, 100));
    Err(Refusal::invalid(message, "Give the start of a path as the audit shows it, such as `src/`."))
}

/// Checks the end of a path: it has a name, and no `.`, `..` or empty component.
///
/// # Errors
///
/// `INVALID_REQUEST`.
pub(crate) fn check_path_suffix(suffix: &str) -> Result<(), Refusal> {
    let names = suffix.strip_prefix('/').unwrap_or(suffix);
    if names.split('/').all(|component| !matches!(component, "" | "." | "..")) {
        return Ok(());
    }
    let message = format!("invalid `pathSuffix` \"{}\"", model::excerpt(suffix, 100));
    Err(Refusal::invalid(message, "Give the end of a path as the audit shows it, such as `main.rs` or `/src/main.rs`."))
}

/// Checks a caller's name in the audit.
///
/// # Errors
///
/// `INVALID_REQUEST`.
pub(crate) fn check_actor(actor: &str) -> Result<(), Refusal> {
    let name = actor.strip_prefix("operator:").or_else(|| actor.strip_prefix(RUN_TOKEN_ACTOR));
    if actor == "service" || actor == NOBODY || name.is_some_and(|name| !name.is_empty()) {
        return Ok(());
    }
    let message = format!("invalid `actor` \"{}\"", model::excerpt(actor, 100));
    Err(Refusal::invalid(
        message,
        "Give `operator:NAME`, `run-token:TOKEN_ID`, `service` or `nobody`, as the audit shows it.",
    ))
}

/// Returns the actor in the records of `actor`. Those of the operator `operator` have another name.
pub(crate) fn recorded_actor(actor: &str) -> String {
    match actor.strip_prefix("operator:") {
        Some(crate::admission::operators::OPERATOR) => format!("operator:{}", model::Scope::Orchestrate.as_str()),
        _ => actor.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_that_was_decoded_as_a_blank_is_one() {
        let parsed = |raw| time("since", Some(raw)).map_err(|refusal| refusal.message);
        for raw in ["2026-01-01T12:00:00+02:00", "2026-01-01T12:00:00 02:00", "2026-01-01T10:00:00Z"] {
            assert_eq!(parsed(raw), Ok(Some("2026-01-01T10:00:00.000000Z".to_owned())), "{raw}");
        }
        for raw in ["2026-01-01 02:00", "2026-01-01T12:00:00 ", "2026-01-01T12:00:00  02:00", "yesterday 02:00"] {
            assert!(parsed(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn malformed_conditions_are_refused() {
        for good in ["src", "src/", "a/b.c/..d"] {
            assert!(check_path_prefix(good).is_ok(), "{good:?}");
        }
        for bad in ["", "/", "/src", "a//b", "../a", "a/./b", "a/.."] {
            assert!(check_path_prefix(bad).is_err(), "{bad:?}");
        }
        for good in ["main.rs", "/main.rs", "src/main.rs", ".lock", "..d"] {
            assert!(check_path_suffix(good).is_ok(), "{good:?}");
        }
        for bad in ["", "/", "a/", "//a", "a//b", "../a", "a/./b", ".."] {
            assert!(check_path_suffix(bad).is_err(), "{bad:?}");
        }
        for good in ["service", "operator:ada", "run-token:tok_1"] {
            assert!(check_actor(good).is_ok(), "{good:?}");
        }
        for (asked, recorded) in [("operator:operator", "operator:orchestrate"), ("operator:ada", "operator:ada")] {
            assert_eq!(recorded_actor(asked), recorded);
        }
        for bad in ["", "ada", "operator:", "agent:x"] {
            assert!(check_actor(bad).is_err(), "{bad:?}");
        }
        for (label, is_good) in [("a:b", true), ("a:", true), ("a:b:c", true), (":b", false), ("a", false), ("", false)]
        {
            assert_eq!(LabelQuery { label: vec![label.to_owned()] }.check().is_ok(), is_good, "{label:?}");
        }
        assert!(LabelQuery { label: vec!["a:b".to_owned(); 17] }.check().is_err());
    }
}
