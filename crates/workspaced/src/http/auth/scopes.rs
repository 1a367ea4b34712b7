//! Which operators a route accepts, as types, so that a handler's signature says it.

use std::fmt::Debug;

use model::Scope;

/// The scopes of which an operator needs one.
pub(crate) trait Accepts: Debug + Send + Sync + 'static {
    /// The scopes.
    const SCOPES: &'static [Scope];
}

macro_rules! accepts {
    ($($(#[$doc:meta])* $name:ident: $($scope:ident)|+;)+) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(crate) struct $name;

            impl Accepts for $name {
                const SCOPES: &'static [Scope] = &[$(Scope::$scope),+];
            }
        )+
    };
}

accepts! {
    /// Operators that may do everything.
    Orchestrators: Orchestrate;
    /// Operators that may decide about calls.
    Deciders: Orchestrate | Approve;
    /// Operators that may read files, and the records of all chains.
    Auditors: Orchestrate | Audit;
    /// Operators that may read runs with their records, approvals and diffs.
    Reviewers: Orchestrate | Approve | Audit;
    /// Operators with any scope.
    Everyone: Orchestrate | Approve | Audit | Metrics;
    /// Operators that may read metrics.
    MetricsReaders: Orchestrate | Metrics;
}
