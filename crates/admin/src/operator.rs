//! `workspaced operator`: creates, lists and revokes operators in the database.

use async_recursion::async_recursion as boxed;
use engine::clock;
use engine::operators::{CreateOperatorRequest, RotateTokenRequest, TokenRotation, chain};
use ledger::{Ledger, LedgerError, OperatorChange};
use model::{Operator, OperatorName, Scope};
use rustix::fs::Mode;

use crate::offline_run::{check_database, database};
use crate::output::print;
use config::StartError;
use config::{ConfigError, OperatorAction, OperatorConfig};
use data_dir::{Continuity, DataDirLock};

/// The creator of operators that this command creates.
const CREATED_BY: &str = "command line";
/// The actor in the records of this command: an operator with access to the data, without a token.
const ACTOR: &str = "operator:command-line";
/// Operators that are read at a time.
const PAGE: u32 = 1000;

/// Creates, lists or revokes operators. Prints the result on standard output.
///
/// # Errors
///
/// If a service uses the data, the database cannot be used, or the operator exists already or does not exist.
#[boxed]
pub async fn operator(config: OperatorConfig) -> Result<(), StartError> {
    check_database(&config.database_url)?;
    // New files are for this user alone, as those of the service are.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    let lock = DataDirLock::take(&config.data_dir)?;
    let ledger = ledger::open(&config.database_url.url).await.map_err(database)?;
    let done = run(&config, &lock, ledger.as_ref()).await;
    ledger.close().await;
    done
}

async fn run(config: &OperatorConfig, lock: &DataDirLock, ledger: &dyn Ledger) -> Result<(), StartError> {
    if lock.check(ledger).await? == Continuity::OlderDatabase {
        let message =
            "--database-url: it is older than the data folder and lacks newer data: put its newest state back";
        return Err(ConfigError(message.to_owned()).into());
    }
    match &config.action {
        OperatorAction::List => list(config, ledger).await,
        OperatorAction::Add(request) => {
            lock.take_over(ledger).await?;
            add(config, ledger, request.clone()).await
        }
        OperatorAction::Rotate(name, request) => {
            lock.take_over(ledger).await?;
            rotate(config, ledger, name, request.clone()).await
        }
        OperatorAction::Revoke(name) => {
            lock.take_over(ledger).await?;
            revoke(config, ledger, name).await
        }
    }
}

async fn add(config: &OperatorConfig, ledger: &dyn Ledger, request: CreateOperatorRequest) -> Result<(), StartError> {
    let (token, created) = request.issue(CREATED_BY).map_err(|refusal| ConfigError(refusal.message))?;
    let name = &token.operator.name;
    let taken = || ConfigError(format!("there is an operator `{name}` already: revoke it first, or use another name"));
    if config.configured.iter().any(|other| other.name.is_same(name)) {
        return Err(taken().into());
    }
    match change(ledger, OperatorChange::Create { token: token.clone(), answer: None }).await {
        Ok(_) => {}
        Err(LedgerError::AlreadyExists) => return Err(taken().into()),
        Err(error) => return Err(database(error)),
    }
    print(&format!("{name}: created with {}; token, shown this once:", scopes(&token.operator)));
    print(&created.token);
    Ok(())
}

async fn rotate(
    config: &OperatorConfig,
    ledger: &dyn Ledger,
    name: &OperatorName,
    request: RotateTokenRequest,
) -> Result<(), StartError> {
    let present = ledger.operator(name).await.map_err(database)?;
    let Some(present) = present.filter(|present| present.operator.revoked_at.is_none()) else {
        return Err(unknown(config, name, "give it a second token in the configuration").into());
    };
    let rotation = request.issue(present.operator, CREATED_BY).map_err(|refusal| ConfigError(refusal.message))?;
    let TokenRotation { token, created, ends_at, overlaps } = rotation;
    let replacing =
        OperatorChange::ReplaceToken { token, ends_at: ends_at.clone(), is_valid_until: overlaps, answer: None };
    if !change(ledger, replacing).await.map_err(database)? {
        return Err(unknown(config, name, "give it a second token in the configuration").into());
    }
    let name = &created.operator.name;
    print(&if overlaps {
        format!("{name}: the earlier token is valid until {ends_at}; new token, shown this once:")
    } else {
        format!("{name}: every earlier token was revoked; new token, shown this once:")
    });
    print(&created.token);
    Ok(())
}

/// Makes a change, with its record. Returns false if no operator of that name is valid.
async fn change(ledger: &dyn Ledger, change: OperatorChange) -> ledger::Result<bool> {
    ledger.change_operator(chain::record(ACTOR, change)).await
}

fn unknown(config: &OperatorConfig, name: &OperatorName, if_configured: &str) -> ConfigError {
    let is_configured = config.configured.iter().any(|other| other.name.is_same(name));
    let hint = if is_configured { if_configured } else { "`operator list` lists all" };
    ConfigError(format!("there is no operator `{name}` in the database: {hint}"))
}

async fn list(config: &OperatorConfig, ledger: &dyn Ledger) -> Result<(), StartError> {
    let mut before = None;
    for operator in &config.configured {
        // The tokens of one operator follow each other.
        if before.replace(&operator.name) == Some(&operator.name) {
            continue;
        }
        let scopes: Vec<_> = operator.scopes.iter().map(|scope| scope.as_str()).collect();
        print(&format!("{}: {}, in the configuration", operator.name, scopes.join(", ")));
    }
    let mut after = 0;
    loop {
        let page = ledger.operators(after, PAGE).await.map_err(database)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = *last;
        for (_, token) in page {
            print(&describe(&token.operator));
        }
    }
}

async fn revoke(config: &OperatorConfig, ledger: &dyn Ledger, name: &OperatorName) -> Result<(), StartError> {
    if change(ledger, OperatorChange::Revoke { name: name.clone(), at: clock::now() }).await.map_err(database)? {
        print(&format!("{name}: revoked"));
        return Ok(());
    }
    if ledger.operator(name).await.map_err(database)?.is_some() {
        print(&format!("{name}: was revoked before"));
        return Ok(());
    }
    Err(unknown(config, name, "remove it from the configuration").into())
}

fn describe(operator: &Operator) -> String {
    let mut line = format!("{}: {}", operator.name, scopes(operator));
    let by = operator.created_by.as_deref().unwrap_or_default();
    line.extend(operator.created_at.iter().map(|at| format!(", created {at} by {by}")));
    line.extend(operator.expires_at.iter().map(|at| format!(", expires {at}")));
    line.extend(operator.revoked_at.iter().map(|at| format!(", revoked {at}")));
    line
}

fn scopes(operator: &Operator) -> String {
    operator.scopes.iter().copied().map(Scope::as_str).collect::<Vec<_>>().join(", ")
}
