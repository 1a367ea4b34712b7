//! The first state of a transaction: calls with parsed inputs.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{Code, LogicalPath, Permission, Refusal, Sha256, judge_file_count};
use serde_json::{Map, Value};

use crate::CallError;
use crate::call::CallContext;
use crate::call::record::Failure;
use crate::call_error::refusals::forbidden;
use crate::engine::Engine;
use crate::read::names::may_list;
use crate::run::in_flight_calls::InFlightGuard;
use crate::run::open_run::OpenRun;
use crate::tool::folder::MAX_FILES;
use crate::tool::{Mutation, ReadTool, ToolRun};

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
    pub calls: Arc<[CallContext]>,
    /// The operation of each.
    pub operations: Vec<Result<Operation, Refusal>>,
}

/// Calls that can be planned: all inputs are valid, and the earlier calls that they need are loaded.
pub(crate) struct Loaded {
    /// The calls, in order.
    pub calls: Arc<[CallContext]>,
    /// The operation of each.
    pub operations: Vec<Operation>,
}

impl Operation {
    /// Parses the tool's own members of an input.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` and the refusals of the tool.
    pub(crate) fn parse(call: &CallContext, members: Map<String, Value>) -> Result<Self, Refusal> {
        match call.tool.run {
            ToolRun::Mutation(parse) => Ok(Self::Mutation(parse(members)?)),
            ToolRun::Read(parse) => {
                let tool = call.parse_read(parse, members)?;
                if tool.at_record().is_some() {
                    let message = "an atomic batch cannot read an earlier record";
                    return Err(Refusal::invalid(message, "Send the read with atSeq as a separate call."));
                }
                Ok(Self::Read(tool))
            }
        }
    }

    /// Returns the paths that the input names.
    pub(crate) fn paths(&self) -> Vec<LogicalPath> {
        match self {
            Self::Mutation(tool) => tool.paths(),
            Self::Read(tool) => tool.paths(),
        }
    }

    /// Returns the versions that the call expects, by path.
    fn expected_versions(&self) -> Vec<(LogicalPath, Sha256)> {
        match self {
            Self::Mutation(tool) => {
                let expected = |path: LogicalPath| tool.expected_version(&path).map(|version| (path, version));
                tool.paths().into_iter().filter_map(expected).collect()
            }
            Self::Read(_) => Vec::new(),
        }
    }
}

impl Parsed {
    /// Creates a transaction of `calls` in their order, which have opened `run`.
    pub(crate) fn new(run: &OpenRun, calls: Vec<(CallContext, Result<Operation, Refusal>)>) -> Self {
        let opened = |(call, operation)| (CallContext { epoch: run.epoch, ..call }, operation);
        let (calls, operations): (Vec<_>, Vec<_>) = calls.into_iter().map(opened).unzip();
        Self { calls: calls.into(), operations }
    }

    /// Loads the earlier calls that the calls need.
    ///
    /// # Errors
    ///
    /// The first call whose input is refused, or whose earlier calls cannot be loaded, with the paths of those before it.
    pub(crate) async fn load(
        self,
        engine: &Engine,
        run: &Arc<OpenRun>,
    ) -> Result<Loaded, (Vec<Vec<LogicalPath>>, Failure)> {
        let mut operations = Vec::with_capacity(self.operations.len());
        for (index, operation) in self.operations.into_iter().enumerate() {
            let loaded = match operation {
                Ok(Operation::Mutation(tool)) => {
                    let call = &self.calls[index];
                    match engine.follow_own_names(run, tool).await {
                        Ok(tool) => load_mutation(engine, run, call, tool, self.calls.len() > 1).await,
                        Err(error) => Err(error),
                    }
                }
                Ok(read) => Ok(read),
                Err(refusal) => Err(refusal.into()),
            };
            match loaded {
                Ok(operation) => operations.push(operation),
                Err(error) => {
                    return Err((operations.iter().map(Operation::paths).collect(), Failure::Call(index, error)));
                }
            }
        }
        Ok(Loaded { calls: self.calls, operations })
    }
}

/// Returns the mutation with all that it needs of the ledger and of the tree before its paths are known.
async fn load_mutation(
    engine: &Engine,
    run: &Arc<OpenRun>,
    call: &CallContext,
    mut tool: Box<dyn Mutation>,
    is_batch: bool,
) -> Result<Operation, CallError> {
    let actor = &call.caller.actor;
    if tool.is_of_command() {
        let open_run = Arc::clone(run);
        let meet = move || {
            tool.meet_tree(&open_run.rules, &open_run.workspace)?;
            Ok(tool)
        };
        // Boxed, so that the future of any other call is smaller.
        tool = Box::pin(engine.blocking(meet)).await?;
    }
    load_folder(engine, run, call, tool.as_mut(), is_batch).await?;
    engine.load_seen_content(run, actor, tool.as_mut()).await?;
    engine.load_restored(run, tool.as_mut()).await?;
    engine.load_earlier_calls(run, actor, tool).await.map(Operation::Mutation)
}

/// Lists the files of the folder that `tool` changes, if it does.
async fn load_folder(
    engine: &Engine,
    run: &Arc<OpenRun>,
    call: &CallContext,
    tool: &mut dyn Mutation,
    is_batch: bool,
) -> Result<(), CallError> {
    let Some(folder) = tool.folder().cloned() else { return Ok(()) };
    let (open_run, path) = (Arc::clone(run), folder.clone());
    let files = engine.blocking(move || Ok(open_run.workspace.files_under(&path, MAX_FILES)?)).await?;
    let Some(files) = files else { return Ok(()) };
    // The answer, also of a dry run, and refusals name the files of the folder.
    if !may_list(call) {
        return Err(forbidden(&[Permission::FileList]).into());
    }
    if is_batch {
        // Earlier calls of the batch may change which files it has.
        let message = format!("`{folder}` is a folder, which no call of a batch can move or delete");
        return Err(Refusal::invalid(message, "Make a separate call for the folder.").at(&folder).into());
    }
    if files.len() == MAX_FILES {
        let message = format!("`{folder}` has at least {MAX_FILES} files, too many for one call");
        let hint = "Move or delete the folders in it one by one.";
        return Err(Refusal::new(Code::PatchBudgetExceeded, message, hint).at(&folder).into());
    }
    tool.take_folder(files)?;
    // Before anything is looked up for each file.
    judge_file_count(&run.rules, &tool.changed_paths()).map_or(Ok(()), |refusal| Err(refusal.into()))
}

/// Waits until no other call under an ID of `calls` is in progress, and locks these IDs until the guards are dropped.
pub(crate) async fn lock_ids<'a>(calls: &[CallContext], run: &'a OpenRun) -> Vec<InFlightGuard<'a>> {
    let ids: BTreeSet<_> = calls.iter().filter(|call| call.client_supplied_id).map(|call| &call.tool_call_id).collect();
    let mut guards = Vec::with_capacity(ids.len());
    // All transactions lock in the same order, so that no two wait for each other.
    for id in ids {
        guards.push(run.in_flight.lock(id).await);
    }
    guards
}

impl Loaded {
    /// Whether a call applies what was changed outside of the service.
    pub(crate) fn is_of_command(&self) -> bool {
        let is_of_command = |operation: &Operation| match operation {
            Operation::Mutation(tool) => tool.is_of_command(),
            Operation::Read(_) => false,
        };
        self.operations.iter().any(is_of_command)
    }

    /// Loads what the run has changed since the states that its calls are based on. The paths are locked.
    ///
    /// # Errors
    ///
    /// As for [`Engine::load_changed_since`].
    pub(crate) async fn load_changed_since(&mut self, engine: &Engine, run: &Arc<OpenRun>) -> Result<(), CallError> {
        for operation in &mut self.operations {
            if let Operation::Mutation(tool) = operation
                && tool.is_of_command()
            {
                engine.load_changed_since(run, tool.as_mut()).await?;
            }
        }
        Ok(())
    }

    /// Returns the paths of each call.
    pub(crate) fn paths(&self) -> Vec<Vec<LogicalPath>> {
        self.operations.iter().map(Operation::paths).collect()
    }

    /// Returns the versions that each call expects.
    pub(crate) fn expected_versions(&self) -> Vec<Vec<(LogicalPath, Sha256)>> {
        self.operations.iter().map(Operation::expected_versions).collect()
    }

    /// What the refusal of each call says in addition.
    pub(crate) fn refusal_notes(&self) -> Vec<Option<&'static str>> {
        let note = |operation: &Operation| match operation {
            Operation::Mutation(tool) => tool.refusal_note(),
            Operation::Read(_) => None,
        };
        self.operations.iter().map(note).collect()
    }

    /// Returns the paths that the transaction locks: those of a single mutation, otherwise the whole run.
    pub(crate) fn paths_to_lock(&self) -> Vec<LogicalPath> {
        match self.operations.as_slice() {
            [Operation::Mutation(tool)] if !tool.is_exclusive() => tool.paths(),
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
