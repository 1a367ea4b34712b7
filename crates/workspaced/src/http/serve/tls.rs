//! TLS: the certificate of the service, which can be replaced while it runs.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the certificate and its key are files of the service"
)]

mod expiry;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::signal::unix::Signal;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::telemetry;
use config::{ConfigError, TlsFiles};

/// An encrypted connection.
pub(crate) type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

/// Whether the client has chosen HTTP/2.
pub(crate) fn is_http2(stream: &TlsStream) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP2)
}

/// How often the files are compared with those in use.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// The most bytes of each file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The protocols that the service speaks, as clients and servers agree on one in the handshake: the first that both have.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// The certificate with which the service identifies itself.
#[derive(Debug)]
pub(crate) struct Certificate {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
    /// The version of the files that was read last, whether it could be used or not. One that could not be read is not here.
    read: Mutex<Version>,
}

/// What changes when a file is replaced or written, or when its owner or its permissions change: device, inode, size in bytes, and
/// time of the last change in seconds and nanoseconds. `None` for a file that is missing.
type Version = [Option<(u64, u64, u64, i64, i64)>; 2];

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read, or if the two are not a certificate and its key.
    pub(crate) fn load(files: TlsFiles) -> Result<Self, ConfigError> {
        // Before the files are read: a change meanwhile is then read at the next comparison.
        let version = version(&files);
        let (config, expires_at) = server_config(&files, &read_all(&files)?)?;
        telemetry::set_certificate_expiry(expires_at);
        let config = RwLock::new(config);
        Ok(Self { files, config, read: Mutex::new(version) })
    }

    /// Shakes hands with a client. Connections keep the certificate of their handshake.
    ///
    /// # Errors
    ///
    /// Fails if the client disconnects, speaks no TLS, or does not accept the certificate.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.config.read()));
        acceptor.accept(stream).await
    }

    /// Reads the files again at each of `hangups`, and if they have changed, until `shutdown` is cancelled.
    pub(crate) async fn keep_current(self: Arc<Self>, mut hangups: Signal, shutdown: CancellationToken) {
        let mut interval = tokio::time::interval(CHECK_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let is_asked = tokio::select! {
                _ = interval.tick() => false,
                _ = hangups.recv() => true,
                () = shutdown.cancelled() => return,
            };
            let certificate = Arc::clone(&self);
            let renewed = tokio::task::spawn_blocking(move || certificate.renew(is_asked)).await;
            match renewed.map_err(|error| ConfigError(error.to_string())).flatten() {
                Ok(true) => tracing::info!("the certificate was read again: new connections use it"),
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%error, "the certificate cannot be replaced: connections use the previous one");
                }
            }
        }
    }

    /// Reads the files again if they have changed since the last time, or if `is_asked`. Returns whether they were read.
    fn renew(&self, is_asked: bool) -> Result<bool, ConfigError> {
        let version = version(&self.files);
        if *self.read.lock() == version && !is_asked {
            return Ok(false);
        }
        // After a failure to read, the version stays that of before, so that the next comparison tries again.
        let texts = read_all(&self.files)?;
        *self.read.lock() = version;
        let (config, expires_at) = server_config(&self.files, &texts)?;
        *self.config.write() = config;
        telemetry::set_certificate_expiry(expires_at);
        Ok(true)
    }
}

fn version(files: &TlsFiles) -> Version {
    files.all().map(|file| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
    })
}

/// Returns the contents of the files of the certificate and of its key.
fn read_all(files: &TlsFiles) -> Result<[Vec<u8>; 2], ConfigError> {
    let cert =
        read(&files.cert).map_err(|error| ConfigError(format!("--tls-cert {}: {error}", files.cert.display())))?;
    let key = read(&files.key).map_err(|error| ConfigError(format!("--tls-key {}: {error}", files.key.display())))?;
    Ok([cert, key])
}

/// Returns the settings of TLS 1.2 and 1.3 with the certificate of `files`, which have these contents, and when it or one of
/// its issuers expires.
fn server_config(
    files: &TlsFiles,
    [cert_text, key_text]: &[Vec<u8>; 2],
) -> Result<(Arc<ServerConfig>, Option<i64>), ConfigError> {
    let cert = |why: String| ConfigError(format!("--tls-cert {}: {why}", files.cert.display()));
    let key = |why: String| ConfigError(format!("--tls-key {}: {why}", files.key.display()));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(cert_text)
        .collect::<Result<_, _>>()
        .map_err(|_| cert("expected certificates in PEM".to_owned()))?;
    if chain.is_empty() {
        return Err(cert("has no certificate in PEM".to_owned()));
    }
    let expires_at = expiry::earliest(chain.iter().map(AsRef::as_ref));
    // Without the parser's message, which may show a line of the file.
    let private_key = PrivateKeyDer::from_pem_slice(key_text)
        .map_err(|_| key("expected a private key in PEM, without a passphrase".to_owned()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private_key))
        .map_err(|error| cert(format!("cannot be used with --tls-key {}: {error}", files.key.display())))?;
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    Ok((Arc::new(config), expires_at))
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Writes a certificate that is its own issuer, and its key.
    fn issue(files: &TlsFiles) {
        issue_for(files, 2);
    }

    fn issue_for(files: &TlsFiles, days: u32) {
        let args = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -days";
        let mut openssl = Command::new("openssl");
        openssl.args(args.split(' ')).arg(days.to_string()).arg("-keyout").arg(&files.key).arg("-out").arg(&files.cert);
        let done = openssl.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    #[test]
    fn files_are_read_again_once_they_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        issue(&files);
        let certificate = Certificate::load(files.clone()).unwrap();
        let in_use = || Arc::clone(&certificate.config.read());
        let first = in_use();
        assert!(!certificate.renew(false).unwrap());
        assert!(Arc::ptr_eq(&first, &in_use()));

        issue(&files);
        assert!(certificate.renew(false).unwrap());
        let second = in_use();
        assert!(!Arc::ptr_eq(&first, &second));

        // One error for each change, until the files can be used again.
        std::fs::write(&files.cert, "none").unwrap();
        let error = certificate.renew(false).unwrap_err().to_string();
        assert!(error.contains("has no certificate in PEM"), "{error}");
        assert!(!certificate.renew(false).unwrap());
        std::fs::remove_file(&files.key).unwrap();
        certificate.renew(false).unwrap_err();
        certificate.renew(true).unwrap_err();
        assert!(Arc::ptr_eq(&second, &in_use()));
        issue(&files);
        assert!(certificate.renew(false).unwrap());
    }

    #[test]
    fn files_that_could_not_be_read_are_read_again_without_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        issue(&files);
        let certificate = Certificate::load(files.clone()).unwrap();
        // A folder can be opened, and not be read.
        let aside = folder.path().join("aside.pem");
        std::fs::rename(&files.key, &aside).unwrap();
        std::fs::create_dir(&files.key).unwrap();
        for _ in 0..2 {
            let error = certificate.renew(false).unwrap_err().to_string();
            assert!(error.contains("--tls-key"), "{error}");
        }
        std::fs::remove_dir(&files.key).unwrap();
        std::fs::rename(&aside, &files.key).unwrap();
        assert!(certificate.renew(false).unwrap());
        assert!(!certificate.renew(false).unwrap());

        // As by a script that copies the file before it permits the service to read it.
        let changed_at = || std::fs::metadata(&files.key).map(|found| (found.ctime(), found.ctime_nsec())).unwrap();
        let before = changed_at();
        while changed_at() == before {
            std::fs::set_permissions(&files.key, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        }
        assert!(certificate.renew(false).unwrap());
    }

    #[test]
    fn the_expiry_is_that_of_the_first_certificate_to_expire() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let now = jiff::Timestamp::now().as_second();
        let in_days =
            || (server_config(&files, &read_all(&files).unwrap()).unwrap().1.unwrap() - now + 3600) / (24 * 3600);
        let mut chain = String::new();
        // The second one expires after 2050, which has another form.
        for (days, earliest) in [(20, 20), (20_000, 20_000), (5, 5)] {
            issue_for(&files, days);
            assert_eq!(in_days(), earliest);
            chain.push_str(&std::fs::read_to_string(&files.cert).unwrap());
        }
        let last = std::fs::read_to_string(&files.cert).unwrap();
        std::fs::write(&files.cert, format!("{last}{chain}")).unwrap();
        assert_eq!(in_days(), 5);
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("large.pem");
        std::fs::write(&file, vec![b'a'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1]).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("more than 1048576 bytes"));
    }
}
