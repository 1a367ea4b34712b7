//! `operator` on a running service. The same commands on the service's data are in [`admin::operator`](admin::operator).

use std::process::ExitCode;

use futures_util::TryStreamExt as _;
use workspaced_client::{Client, CreatedOperator, NewOperator, NewOperatorToken, Operator, OperatorName};

use cli::connection::{Connection, Env, connect};
use cli::ended;
use cli::error::CliError;
use cli::listing::last_use;
use cli::output::Output;
use config::OperatorAction;

use crate::command_line::OperatorArgs;

/// Runs `operator` on a running service, with the exit codes of [`cli::run`].
pub async fn run_operator(args: &OperatorArgs, env: &(dyn Fn(&str) -> Option<String> + Sync)) -> ExitCode {
    let done = match args.action() {
        Ok(action) => run(&action, &args.connection, env).await,
        Err(error) => Err(CliError::Usage(error.to_string())),
    };
    ended(done, Some(&args.connection), env)
}

/// Creates, lists or revokes operators of the service.
async fn run(action: &OperatorAction, connection: &Connection, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&connection.address, env)?;
    let output = Output::new(connection, env);
    match action {
        OperatorAction::List => list(&client, output).await,
        OperatorAction::Add(request) => {
            let name = OperatorName::parse(&request.name);
            let name = name.map_err(|error| CliError::Usage(format!("`{}`: {error}", request.name)))?;
            let new = NewOperator { name, scopes: request.scopes.clone(), expires_at: request.expires_at.clone() };
            created(output, &client.create_operator(&new).await?)
        }
        OperatorAction::Rotate(name, request) => {
            let new =
                NewOperatorToken { overlap_seconds: request.overlap_seconds, expires_at: request.expires_at.clone() };
            created(output, &client.rotate_operator_token(name, &new).await?)
        }
        OperatorAction::Revoke(name) => {
            client.revoke_operator(name).await?;
            if !output.is_json {
                output.line(&format!("{name}: revoked"))?;
            }
            Ok(())
        }
    }
}

fn created(output: Output, created: &CreatedOperator) -> Result<(), CliError> {
    if output.is_json {
        return Ok(output.json(created)?);
    }
    let mut fields = vec![
        ("operator", created.operator.name.to_string()),
        ("scopes", scopes(&created.operator)),
        ("expires", created.operator.expires_at.clone().unwrap_or_default()),
    ];
    fields.push(("token", created.token.clone()));
    output.fields(&fields)?;
    output.note("the token is shown only here");
    Ok(())
}

async fn list(client: &Client, output: Output) -> Result<(), CliError> {
    let mut operators = std::pin::pin!(client.operators());
    let mut rows = Vec::new();
    while let Some(operator) = operators.try_next().await? {
        if output.is_json {
            output.json(&operator)?;
            continue;
        }
        let state = match (&operator.revoked_at, &operator.expires_at) {
            (Some(at), _) if operator.is_revoked() => format!("revoked {}", output.time(at)),
            (_, Some(at)) => format!("expires {}", output.time(at)),
            (_, None) => "valid".to_owned(),
        };
        let created =
            operator.created_at.as_ref().map_or_else(|| "in the configuration".to_owned(), |at| output.time(at));
        rows.push(vec![
            operator.name.to_string(),
            scopes(&operator),
            state,
            last_use(client, output, &actor_of(&operator)).await?,
            created,
            operator.created_by.clone().unwrap_or_default(),
        ]);
    }
    if !output.is_json {
        output.table(&["OPERATOR", "SCOPES", "TOKEN", "LAST RECORD", "CREATED", "BY"], &rows)?;
    }
    Ok(())
}

/// The name of an operator in records.
fn actor_of(operator: &Operator) -> String {
    format!("operator:{}", operator.name)
}

fn scopes(operator: &Operator) -> String {
    operator.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(",")
}
