//! Traces: spans of requests, calls, commits and applied changes, which are sent to an OpenTelemetry collector. They have
//! routes, tools, decisions and IDs, and neither contents, reasons and paths of files nor tokens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::http::HeaderMap;
use bytes::{Bytes, BytesMut};
use engine::SPANS;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData, SpanExporter as Export,
};
use parking_lot::Mutex;
use reqwest::Url;
use tokio::runtime::Handle;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::telemetry::trace_parent::trace_parent;
use config::http_client;
use config::{ConfigError, OtlpConfig};

/// The name of the span of a request, as the log has it.
pub(crate) const REQUEST: &str = "request";
/// Spans that wait to be sent. Further ones are dropped.
const MAX_QUEUED_SPANS: usize = 4096;
/// The most spans of one message to the collector.
const MAX_BATCH_SPANS: usize = 512;
/// The longest time until a span is sent.
const SEND_INTERVAL: Duration = Duration::from_secs(2);
/// How long the collector may take to answer a message.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of its answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// How long the service waits at its end until the last spans are sent.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time between two warnings that spans are lost.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);
/// The most bytes of an attribute. Some are chosen by callers.
const MAX_ATTRIBUTE_BYTES: usize = 256;

/// Whether spans are sent. Without, requests have nothing to do for them.
static IS_ENABLED: AtomicBool = AtomicBool::new(false);

/// Sends spans until it is closed.
#[derive(Debug)]
pub(crate) struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts sending spans. The collector need not answer yet.
    ///
    /// # Errors
    ///
    /// Fails if the address of the collector cannot be used.
    pub(crate) fn start(config: &OtlpConfig) -> Result<Self, ConfigError> {
        // Without the address, which may have a secret.
        let bad = |why: &str| ConfigError(format!("OTEL_EXPORTER_OTLP_ENDPOINT: the address cannot be used: {why}"));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(CollectorAddress::new(config).map_err(|why| bad(&why))?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&config.url)
            .build()
            .map_err(|_| bad("expected http:// or https://, a host and perhaps a path"))?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_QUEUED_SPANS)
            .with_max_export_batch_size(MAX_BATCH_SPANS)
            .with_scheduled_delay(SEND_INTERVAL)
            .build();
        let processor = BatchSpanProcessor::builder(Conventional(exporter)).with_batch_config(batches).build();
        let resource = Resource::builder()
            .with_service_name(config.service_name.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.sample_ratio)));
        let provider =
            SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource).with_sampler(sampler);
        IS_ENABLED.store(true, Ordering::Relaxed);
        Ok(Self(provider.build()))
    }

    /// Returns the layer that makes spans of traces from those of the program. Events of the log are left out: their texts
    /// may contain paths.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("workspaced"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(dynamic_filter_fn(|metadata, _| is_traced(metadata)).with_callsite_filter(interest))
    }

    /// Sends the remaining spans, within a limit of time.
    pub(crate) async fn close(self) {
        let closing = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(CLOSE_TIMEOUT));
        // The thread of the exporter may still wait for the collector.
        let closed = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
        if !matches!(closed, Ok(Ok(Ok(())))) {
            tracing::warn!("the last spans were not sent to the collector of traces");
        }
    }
}

/// Whether a span of the program is one of traces: those of requests, except for what is polled, and those of calls.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
        && (metadata.target() == SPANS || (metadata.name() == REQUEST && *metadata.level() <= Level::INFO))
}

/// Asks the filters again for each span, never from a cache. Where a library only asks whether a level is enabled, as `sqlx` does,
/// the answers of the filters of each layer remain on the thread, and would be taken for those of the next span.
fn interest(metadata: &'static Metadata<'static>) -> Interest {
    if is_traced(metadata) { Interest::sometimes() } else { Interest::never() }
}

/// Makes `span`, which has not begun, a child of the caller's span that `headers` name.
pub(crate) fn set_parent(span: &Span, headers: &HeaderMap) {
    if !IS_ENABLED.load(Ordering::Relaxed) {
        return;
    }
    let Some(parent) = trace_parent(headers) else { return };
    let (Ok(trace), Ok(id)) = (TraceId::from_hex(parent.trace_id), SpanId::from_hex(parent.parent_id)) else { return };
    let flags = if parent.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    let context = SpanContext::new(trace, id, flags, true, TraceState::default());
    // Fails only for a span that is not traced.
    let _ = span.set_parent(Context::new().with_remote_span_context(context));
}

/// Adds the status of the answer to the span of a request.
pub(crate) fn set_status(span: &Span, status: u16) {
    if IS_ENABLED.load(Ordering::Relaxed) {
        span.set_attribute("http.response.status_code", i64::from(status));
        if status >= 500 {
            span.set_status(Status::error(""));
        }
    }
}

/// Sends spans under the names that OpenTelemetry's conventions have for HTTP servers.
#[derive(Debug)]
struct Conventional(SpanExporter);

impl Export for Conventional {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        batch.iter_mut().for_each(conform);
        self.0.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

fn conform(span: &mut SpanData) {
    // Names of the program's own fields. `level` and `target` say nothing about a request.
    span.attributes.retain(|attribute| !["trace.id", "level", "target"].contains(&attribute.key.as_str()));
    for KeyValue { value, .. } in &mut span.attributes {
        if let Value::String(text) = value
            && text.as_str().len() > MAX_ATTRIBUTE_BYTES
        {
            let text = text.as_str();
            *value = text[..text.floor_char_boundary(MAX_ATTRIBUTE_BYTES)].to_owned().into();
        }
    }
    if span.name != REQUEST {
        return;
    }
    span.span_kind = SpanKind::Server;
    let mut name = String::new();
    for attribute in &mut span.attributes {
        match attribute.key.as_str() {
            "http.method" => {
                attribute.key = "http.request.method".into();
                name.insert_str(0, &attribute.value.as_str());
            }
            "http.route" => name = format!("{name} {}", attribute.value.as_str()),
            _ => {}
        }
    }
    span.name = name.into();
}

/// The collector, as the exporter calls it. The exporter has a thread without a runtime, so that requests run on that of the
/// service.
#[derive(Debug)]
struct CollectorAddress {
    http: reqwest::Client,
    runtime: Handle,
    /// When a warning was logged last.
    warned: Mutex<Option<Instant>>,
}

impl CollectorAddress {
    fn new(config: &OtlpConfig) -> Result<Self, String> {
        let url = Url::parse(&config.url).map_err(|error| error.to_string())?;
        let http = http_client::client_of(&url, ANSWER_TIMEOUT).map_err(|error| error.without_url().to_string())?;
        Ok(Self { http, runtime: Handle::current(), warned: Mutex::new(None) })
    }

    fn warn(&self, why: &str) {
        let mut warned = self.warned.lock();
        if warned.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL) {
            *warned = Some(Instant::now());
            tracing::warn!(why, "spans cannot be sent to the collector of traces, and are lost if this goes on");
        }
    }
}

#[async_trait]
impl HttpClient for CollectorAddress {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sending = self.runtime.spawn(send(self.http.clone(), request));
        let sent = sending.await.map_err(HttpError::from).flatten();
        match &sent {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => self.warn(response.status().as_str()),
            Err(error) => self.warn(&error.to_string()),
        }
        sent
    }
}

/// Sends a message and reads a bounded answer.
async fn send(http: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    // Without the address: an operator may have written a secret into it.
    let plain = |error: reqwest::Error| error.without_url();
    let mut response = http.execute(request.try_into().map_err(plain)?).await.map_err(plain)?;
    let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
    let mut body = BytesMut::new();
    while let Some(part) = response.chunk().await.map_err(plain)? {
        if body.len() + part.len() > MAX_ANSWER_BYTES {
            return Err(format!("the answer has more than {MAX_ANSWER_BYTES} bytes").into());
        }
        body.extend_from_slice(&part);
    }
    let mut answer = Response::new(body.freeze());
    (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
    Ok(answer)
}
