//! `call`: one tool call.

use serde_json::{Map, Value};
use workspaced_client::RunId;

use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::listing::with_run;
use crate::output::Output;
use crate::transfer::read_input;

/// Arguments of `call`.
#[derive(Debug, clap::Args)]
pub struct CallArgs {
    /// Tool, such as `read_file`.
    #[arg(value_name = "TOOL")]
    tool: String,
    /// Members of the input: `KEY=TEXT`, or `KEY:=JSON` for what is not a text, such as `maxLines:=50`.
    #[arg(value_name = "KEY=VALUE")]
    members: Vec<String>,
    /// Run.
    #[arg(long, env = "WORKSPACED_RUN", value_name = "ID", value_parser = parse_run)]
    run: RunId,
    /// Input as a JSON object: the text, `@FILE`, or `-` for standard input. `KEY=VALUE` replaces its members.
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Parses the ID of a run, for clap.
pub(super) fn parse_run(raw: &str) -> Result<RunId, String> {
    RunId::parse(raw).map_err(|error| error.to_string())
}

/// Calls the tool. People get the text view, which is made for reading.
pub(super) async fn run(args: CallArgs, env: &Env<'_>) -> Result<(), CliError> {
    let input = input_of(&args)?;
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    if output.is_json {
        let call = async |run: &RunId| client.call(run, &args.tool, &input).await;
        let answer: Value = with_run(&client, &args.run, call).await?;
        output.json(&answer)?;
    } else {
        let call = async |run: &RunId| client.call_as_text(run, &args.tool, &input).await;
        output.text(&with_run(&client, &args.run, call).await?.text)?;
    }
    Ok(())
}

fn input_of(args: &CallArgs) -> Result<Map<String, Value>, CliError> {
    let mut input = match &args.input {
        None => Map::new(),
        Some(given) => serde_json::from_str(&read_input(given)?)
            .map_err(|error| CliError::Usage(format!("--input is not a JSON object: {error}")))?,
    };
    for member in &args.members {
        let (name, value) = parse_member(member)?;
        input.insert(name, value);
    }
    Ok(input)
}

fn parse_member(raw: &str) -> Result<(String, Value), CliError> {
    let Some((name, text)) = raw.split_once('=').filter(|(name, _)| !matches!(*name, "" | ":")) else {
        return Err(CliError::Usage(format!("`{raw}` is not KEY=TEXT or KEY:=JSON")));
    };
    match name.strip_suffix(':') {
        None => Ok((name.to_owned(), Value::from(text))),
        Some(name) => match serde_json::from_str(text) {
            Ok(value) => Ok((name.to_owned(), value)),
            Err(error) => Err(CliError::Usage(format!("`{raw}`: the value is not JSON: {error}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_texts_or_json() {
        let of = |raw| parse_member(raw).unwrap();
        assert_eq!(of("path=a=b"), ("path".to_owned(), json!("a=b")));
        assert_eq!(of("maxLines:=5"), ("maxLines".to_owned(), json!(5)));
        assert_eq!(of("content="), ("content".to_owned(), json!("")));
        for bad in ["path", "=x", ":=1", "a:=x"] {
            assert!(matches!(parse_member(bad), Err(CliError::Usage(_))), "{bad}");
        }
    }
}
