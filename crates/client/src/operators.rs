//! Operators.

use async_recursion::async_recursion as boxed;
use futures_util::Stream;
use model::{Operator, OperatorName, Scope};
use reqwest::Method;
use serde::{Deserialize, Serialize};

use crate::problem::Error;
use crate::request::Repeat;
use crate::transport::Client;

/// A request for an operator.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewOperator {
    /// The name.
    pub name: OperatorName,
    /// What the operator may do, at least one scope.
    pub scopes: Vec<Scope>,
    /// Expiry time of the token, RFC 3339. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A request for another token of an operator.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewOperatorToken {
    /// Seconds for which the present token stays valid. Default: 3600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap_seconds: Option<u64>,
    /// Expiry time of the new token, RFC 3339. Default: that of the present one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// An operator with its token, which the service shows only once.
#[derive(Clone, Serialize, Deserialize)]
pub struct CreatedOperator {
    /// The operator.
    #[serde(flatten)]
    pub operator: Operator,
    /// The secret.
    pub token: String,
}

impl std::fmt::Debug for CreatedOperator {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedOperator").field("operator", &self.operator).finish_non_exhaustive()
    }
}

impl Client {
    /// Creates an operator.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn create_operator(&self, new: &NewOperator) -> Result<CreatedOperator, Error> {
        let request = self.request(Method::POST, ["v1", "operators"])?;
        request.json(new).repeat(Repeat::IfNotExecuted).answer(self).await
    }

    /// Lists operators, revoked ones included.
    pub fn operators(&self) -> impl Stream<Item = Result<Operator, Error>> + use<> {
        self.pages(vec!["v1".to_owned(), "operators".to_owned()], Vec::new())
    }

    /// Gives an operator of the database another token. The present one stays valid for a while.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn rotate_operator_token(
        &self,
        name: &OperatorName,
        new: &NewOperatorToken,
    ) -> Result<CreatedOperator, Error> {
        let request = self.request(Method::POST, ["v1", "operators", name.as_str(), "tokens"])?;
        request.json(new).repeat(Repeat::IfNotExecuted).answer(self).await
    }

    /// Revokes an operator.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn revoke_operator(&self, name: &OperatorName) -> Result<(), Error> {
        self.request(Method::DELETE, ["v1", "operators", name.as_str()])?.done(self).await
    }
}
