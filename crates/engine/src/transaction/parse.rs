//! The first state of a transaction: calls with parsed inputs.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{LogicalPath, Refusal, Sha256, ToolCallId};
use serde_json::{Map, Value};

use crate::CallError;
use crate::call::record::Failure;
use crate::call::{Call, OpenedCall};
use crate::engine::Engine;
use crate::run::keyed::KeyedLockGuard;
use crate::run::open_run::OpenRun;
use crate::tool::{Mutation, ReadTool, Scope, ToolRun};
use crate::transaction::lookup::CallLookup;

/// The operation of a call.
pub(crate) enum Operation {
    /// A change.
    Mutation(Box<dyn Mutation>),
    /// A read of the files as the calls before it would leave them.
    Read(Box<dyn ReadTool>),
}

/// The calls of a transaction, each with its parsed input or the refusal of it.
pub(crate) struct Parsed {
    /// The calls, in order.
    pub calls: Arc<[OpenedCall]>,
    /// The operation of each.
    pub operations: Vec<Result<Operation, Refusal>>,
}

/// Calls that can be planned: all inputs are valid, and what the calls need of the run and its history is known.
pub(crate) struct Loaded {
    /// The calls, in order.
    pub calls: Arc<[OpenedCall]>,
    /// The paths of each.
    pub scopes: Arc<[Scope]>,
    /// The operation of each.
    pub operations: Vec<Operation>,
}

impl Operation {
    /// Parses the tool's own members of an input.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` and the refusals of the tool.
    pub(crate) fn parse(call: &Call, members: Map<String, Value>) -> Result<Self, Refusal> {
        match call.tool.run {
            ToolRun::Mutation(parse) => {
                let mut tool = parse(members)?;
                if let Some(format) = &call.format {
                    tool.in_format(format);
                }
                Ok(Self::Mutation(tool))
            }
            ToolRun::Read(parse) => {
                let tool = call.parse_read(parse, members)?;
                if tool.at_record().is_some() {
                    let message = "an atomic batch cannot read an earlier record";
                    return Err(Refusal::invalid(message, "Send the read with atSeq as a separate call."));
                }
                Ok(Self::Read(tool))
            }
            ToolRun::Command => {
                let message = "a batch cannot run a command";
                Err(Refusal::invalid(message, "Call run_command by itself, before or after the batch."))
            }
        }
    }

    /// Returns the paths that the input names, and what is known of the change.
    pub(crate) fn scope(&self) -> Scope {
        match self {
            Self::Mutation(tool) => tool.scope(),
            Self::Read(tool) => Scope::of(tool.paths()),
        }
    }
}

impl Parsed {
    /// Creates a transaction of `calls` in their order.
    pub(crate) fn new(calls: Vec<(OpenedCall, Result<Operation, Refusal>)>) -> Self {
        let (calls, operations): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        Self { calls: calls.into(), operations }
    }

    /// Loads what the calls need.
    ///
    /// # Errors
    ///
    /// The first call whose input is refused, or for which something cannot be loaded, with the scopes of those before it.
    pub(crate) async fn load(self, engine: &Engine, run: &Arc<OpenRun>) -> Result<Loaded, (Vec<Scope>, Failure)> {
        let count = self.calls.len();
        let (mut operations, mut scopes) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (index, operation) in self.operations.into_iter().enumerate() {
            let loaded = match operation {
                Ok(Operation::Mutation(mut tool)) => {
                    if tool.meets_tree() {
                        // Boxed, so that the future of any other call is smaller.
                        match Box::pin(meet_tree(engine, run, tool)).await {
                            Ok(met) => tool = met,
                            Err(error) => return Err((scopes, Failure::Call(index, error))),
                        }
                    }
                    let lookup = CallLookup { engine, run, call: &self.calls[index], is_batch: count > 1 };
                    tool.prepare(&lookup).await.map(|()| Operation::Mutation(tool))
                }
                Ok(read) => Ok(read),
                Err(refusal) => Err(refusal.into()),
            };
            match loaded {
                Ok(operation) => {
                    scopes.push(operation.scope());
                    operations.push(operation);
                }
                Err(error) => return Err((scopes, Failure::Call(index, error))),
            }
        }
        Ok(Loaded { calls: self.calls, scopes: scopes.into(), operations })
    }
}

/// Returns the mutation once it knows which files of the tree it is about, with its large contents staged.
async fn meet_tree(
    engine: &Engine,
    run: &Arc<OpenRun>,
    mut tool: Box<dyn Mutation>,
) -> Result<Box<dyn Mutation>, CallError> {
    let open_run = Arc::clone(run);
    let _permit = engine.write_permit().await;
    let meet = move || {
        tool.meet_tree(&open_run.rules, &open_run.workspace, open_run.disk.reservation())?;
        Ok(tool)
    };
    engine.blocking(meet).await
}

/// Waits until no other call under an ID of `calls` is in progress, and locks these IDs until the guards are dropped.
pub(crate) async fn lock_ids<'a>(calls: &[OpenedCall], run: &'a OpenRun) -> Vec<KeyedLockGuard<'a, ToolCallId>> {
    let ids: BTreeSet<_> = calls.iter().filter(|call| call.client_supplied_id).map(|call| &call.tool_call_id).collect();
    let mut guards = Vec::with_capacity(ids.len());
    // All transactions lock in the same order, so that no two wait for each other.
    for id in ids {
        guards.push(run.in_flight.lock(id).await);
    }
    guards
}

impl Loaded {
    /// Whether it is one call by itself that applies what was changed outside of the service, or undoes it. The calls of a batch have
    /// the limits of calls.
    pub(crate) fn is_of_command(&self) -> bool {
        matches!(&*self.scopes, [scope] if scope.is_of_command)
    }

    /// Loads what the run has changed since the states that its calls are based on. The paths are locked.
    ///
    /// # Errors
    ///
    /// As for [`Engine::load_changed_since`].
    pub(crate) async fn load_changed_since(&mut self, engine: &Engine, run: &Arc<OpenRun>) -> Result<(), CallError> {
        for (operation, scope) in self.operations.iter_mut().zip(&*self.scopes) {
            if let Operation::Mutation(tool) = operation
                && let Some(since) = tool.changed_since()
            {
                engine.load_changed_since(run, &scope.paths, since).await?;
            }
        }
        Ok(())
    }

    /// Returns the versions that each call expects.
    pub(crate) fn expected_versions(&mut self) -> Vec<Vec<(LogicalPath, Sha256)>> {
        let expected = |operation: &mut Operation| match operation {
            Operation::Mutation(tool) => {
                let versions = tool.expected_versions().into_iter();
                versions.filter_map(|(path, version)| Some((path.clone(), version.sha256()?))).collect()
            }
            Operation::Read(_) => Vec::new(),
        };
        self.operations.iter_mut().map(expected).collect()
    }

    /// Returns the paths that the transaction locks: those of a single mutation, otherwise the whole run.
    pub(crate) fn paths_to_lock(&self) -> Vec<LogicalPath> {
        match (self.operations.as_slice(), &*self.scopes) {
            ([Operation::Mutation(_)], [scope]) if !scope.is_exclusive => scope.paths.clone(),
            _ => vec![LogicalPath::root()],
        }
    }

    /// Returns the index of the first mutation.
    pub(crate) fn first_mutation(&self) -> Option<usize> {
        self.operations.iter().position(|operation| matches!(operation, Operation::Mutation(_)))
    }

    /// Whether a call reads.
    pub(crate) fn has_reads(&self) -> bool {
        self.operations.iter().any(|operation| matches!(operation, Operation::Read(_)))
    }
}
