//! Where clients find the issuer of access tokens: the metadata of this service as a protected resource (RFC 9728).

use axum::extract::State;
use axum::http::uri::{Authority, Uri};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use model::{Permission, Scope};
use serde::Serialize;

use crate::http::extract::{Json, Query};
use crate::http::mcp;
use crate::http::problem::{CHALLENGE, Problem, ProblemBody};
use crate::service::{OpenAccess, Service};

/// What the path of a resource follows in the address of its metadata.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The service as a protected resource.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ResourceMetadata {
    /// The URL of the service, for which a client asks the issuer for a token.
    #[schema(format = "uri", example = "https://files.example.org")]
    resource: String,
    /// The issuer.
    #[schema(example = json!(["https://login.example.org"]))]
    authorization_servers: Vec<String>,
    /// Scopes of operators, and permissions in a run.
    #[schema(example = json!(["audit", "file:read"]))]
    scopes_supported: Vec<&'static str>,
    /// How a token is sent: in the header.
    #[schema(example = json!(["header"]))]
    bearer_methods_supported: [&'static str; 1],
    /// The name of the service.
    #[schema(example = "workspaced")]
    resource_name: &'static str,
}

/// Get the issuer of access tokens
///
/// The metadata of this service as a protected resource, as of RFC 9728. A service without an issuer has none.
#[utoipa::path(
    get, path = "/.well-known/oauth-protected-resource", tag = "open", operation_id = "getResourceMetadata", security(()),
    responses(
        (status = 200, description = "The metadata.", body = ResourceMetadata),
        (status = 404, description = "`NOT_FOUND`: no issuer is configured.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn get_resource_metadata(
    State(service): State<Service>,
    Query(()): Query<()>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<ResourceMetadata>, Problem> {
    metadata(&service.state.access, "", &uri, &headers)
}

/// Get the issuer of access tokens for `/mcp`
///
/// As `/.well-known/oauth-protected-resource`, for clients of the Model Context Protocol.
#[utoipa::path(
    get, path = "/.well-known/oauth-protected-resource/mcp", tag = "open", operation_id = "getMcpResourceMetadata",
    security(()),
    responses(
        (status = 200, description = "The metadata.", body = ResourceMetadata),
        (status = 404, description = "`NOT_FOUND`: no issuer is configured.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn get_mcp_resource_metadata(
    State(service): State<Service>,
    Query(()): Query<()>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<ResourceMetadata>, Problem> {
    metadata(&service.state.access, mcp::PATH, &uri, &headers)
}

fn metadata(
    access: &OpenAccess,
    path: &str,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Json<ResourceMetadata>, Problem> {
    let issuer = access.issuer.as_ref().ok_or_else(Problem::no_route)?;
    let base = Asked::of(uri, headers).base_url(access).ok_or_else(Problem::no_route)?;
    let scopes = Scope::ALL.into_iter().map(Scope::as_str);
    // Only tokens for a run have permissions.
    let permissions = Permission::ALL.into_iter().filter(|_| issuer.config.run_claim.is_some()).map(Permission::as_str);
    Ok(Json(ResourceMetadata {
        resource: format!("{base}{path}"),
        authorization_servers: vec![issuer.config.issuer.clone()],
        scopes_supported: scopes.chain(permissions).collect(),
        bearer_methods_supported: ["header"],
        resource_name: "workspaced",
    }))
}

/// The host that a request has named.
pub(crate) struct Asked {
    uri: Uri,
    host: Option<HeaderValue>,
}

impl Asked {
    pub(crate) fn of(uri: &Uri, headers: &HeaderMap) -> Self {
        Self { uri: uri.clone(), host: headers.get(header::HOST).cloned() }
    }

    /// Returns the URL of the service, without a `/` at its end: that of the configuration, or else the one that was asked.
    pub(crate) fn base_url(&self, access: &OpenAccess) -> Option<String> {
        let configured = access.issuer.as_ref().and_then(|issuer| issuer.config.resource.clone());
        configured.or_else(|| {
            // HTTP/2 has the host in the target.
            let host = self.host.as_ref().and_then(|host| host.to_str().ok());
            let host: Authority = host.or(self.uri.authority().map(Authority::as_str))?.parse().ok()?;
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
            let scheme = if access.is_tls { "https" } else { "http" };
            host.as_str().bytes().all(is_host).then(|| format!("{scheme}://{host}"))
        })
    }
}

/// Tells in the challenge of a response with status 401 where the issuer is found.
pub(crate) fn add_metadata(response: &mut Response, access: &OpenAccess, route: &str, asked: &Asked) {
    let Some(base) = asked.base_url(access) else { return };
    let Some((scheme, rest)) = base.split_once("://") else { return };
    // The well-known part goes between the host and the path.
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let resource = if route == mcp::PATH { mcp::PATH } else { "" };
    let challenge = format!("{CHALLENGE}, resource_metadata=\"{scheme}://{host}{WELL_KNOWN}{path}{resource}\"");
    // The URL is that of the configuration, or has a host that was parsed: it contains no quote.
    if let Ok(challenge) = HeaderValue::try_from(challenge) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
}
