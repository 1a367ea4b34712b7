//! The engine of the service: runs, calls and transactions over a ledger and workspaces.
//!
//! Its face is four services: [`runs`], [`calls`], [`operators`] and [`audit`]. They share one engine, which nothing outside of this
//! crate reaches. The crate has no HTTP and no SQL, and opens no file of a run. Only a transaction changes a run, and every call is
//! recorded before it is answered.

mod admission;
mod approvals;
pub mod audit;
mod call;
mod call_error;
mod caller;
pub mod calls;
pub mod clock;
mod engine;
mod history;
mod limits;
mod metrics;
mod opening;
pub mod operators;
mod page;
mod read;
mod reconcile;
mod run;
pub mod runs;
mod services;
mod stored_runs;
#[cfg(test)]
mod tests;
mod tool;
pub mod tools;
mod transaction;

pub use call_error::refusals::{forbidden, timed_out};
pub use call_error::{CallError, unwritable};
pub use caller::{Caller, RequestIds};
pub use limits::Limits;
pub use metrics::{SPANS, set_permits};
pub use page::conditions::{CreatedQuery, LabelQuery, OrderQuery};
pub use page::{Cursor, DEFAULT_LIMIT, List, ListKey, MAX_LIMIT, Page, Paging};
pub use services::{Resources, Services};

pub(crate) use model::json;
