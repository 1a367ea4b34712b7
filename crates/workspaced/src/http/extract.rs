//! Extractors with limits. Every rejection is a [`Problem`].

pub(crate) mod body;
mod query;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use engine::CallError;
use model::{Refusal, json};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use self::body::JsonBytes;
pub(crate) use self::query::Query;
use crate::http::problem::Problem;
use crate::service::Service;

/// A JSON body. A request body is one object, limited in size, depth and time, without unknown or duplicate members.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

/// The parameters of the path.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Service> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Problem> {
        let JsonBytes(text) = JsonBytes::from_request(request, service).await?;
        Ok(Self(json::parse_into(&text)?))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(text) => json_text(text).into_response(),
            Err(error) => Problem::from(CallError::Internal(Box::new(error))).into_response(),
        }
    }
}

/// Returns a response of JSON text.
pub(crate) fn json_text(text: impl IntoResponse) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], text)
}

impl<T: DeserializeOwned + Send> FromRequestParts<Service> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, service).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => {
                let message = rejection.body_text().replace("Invalid URL: ", "");
                Err(Refusal::invalid(message, "Compare the path with /openapi.json.").into())
            }
        }
    }
}
