//! TLS 1.3 between nodes. Both sides show the domain's certificate and accept only that one, byte
//! for byte; so names, dates and issuers do not count. That the other side has its key, too, is
//! seen by the signature of the handshake.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use os::InternalFd;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct};
use rustls::{DistinguishedName, Error, ServerConfig, ServerConnection, SignatureScheme};

use super::channel::{self, Channel};
use super::key::Key;

/// The name in the certificate, which nobody checks.
pub(super) const NAME: &str = "solera.invalid";

/// How a domain's nodes talk.
#[derive(Clone)]
pub struct Tls {
    asker: Arc<ClientConfig>,
    answerer: Arc<ServerConfig>,
    text: Arc<str>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tls")
    }
}

impl Tls {
    /// With the domain's key.
    pub fn new(key: &Key) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Self::with(key, &provider).map_err(|error| io::Error::other(format!("TLS: {error}")))
    }

    fn with(key: &Key, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let same = Arc::new(Same {
            certificate: key.certificate.clone(),
            algorithms: provider.signature_verification_algorithms,
        });
        let versions = &[&rustls::version::TLS13];
        let shown = || (vec![key.certificate.clone()], key.secret.clone_key());
        let (certificates, secret) = shown();
        let mut asker = ClientConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&same) as _)
            .with_client_auth_cert(certificates, secret)?;
        asker.resumption = Resumption::disabled();
        asker.enable_sni = false;
        let (certificates, secret) = shown();
        let mut answerer = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(versions)?
            .with_client_cert_verifier(same)
            .with_single_cert(certificates, secret)?;
        answerer.send_tls13_tickets = 0;
        let (asker, answerer) = (Arc::new(asker), Arc::new(answerer));
        Ok(Self { asker, answerer, text: key.text.as_str().into() })
    }

    /// What the key file has.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The side that connected.
    pub(super) fn asker(&self, fd: OwnedFd) -> io::Result<Secured> {
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::clone(&self.asker), name);
        // Out of the way of a program in which this is a library.
        let fd = InternalFd::new(fd);
        Ok(Secured { fd, session: session.map_err(|error| reason(&error))?.into(), held: 0 })
    }

    /// The side that listens.
    pub(super) fn answerer(&self, fd: OwnedFd) -> io::Result<Secured> {
        let session =
            ServerConnection::new(Arc::clone(&self.answerer)).map_err(|error| reason(&error))?;
        Ok(Secured { fd: InternalFd::in_place(fd), session: session.into(), held: 0 })
    }
}

/// Accepts the domain's certificate.
#[derive(Debug)]
struct Same {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Same {
    fn check(&self, shown: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        if *shown == self.certificate && more.is_empty() {
            return Ok(());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }
}

impl ServerCertVerifier for Same {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown, more).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, shown, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Same {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown, more).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls12_signature(self, message, shown, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls13_signature(self, message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A socket with TLS over it.
pub(super) struct Secured {
    fd: InternalFd,
    session: Connection,
    /// Bytes that were deciphered and not taken.
    held: usize,
}

impl Channel for Secured {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Ok(bytes) => {
                    self.held = self.held.saturating_sub(bytes);
                    return Ok(bytes);
                }
                // It ended without saying so. Frames have lengths: none is taken for whole.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) if channel::would_block(&error) => {}
                Err(error) => return Err(error),
            }
            if self.session.read_tls(&mut Socket(self.fd.as_fd()))? == 0 {
                return Ok(0);
            }
            match self.session.process_new_packets() {
                Ok(state) => self.held = state.plaintext_bytes_to_read(),
                Err(error) => {
                    // The other side is told why, if it is still there.
                    let _ = self.flush();
                    return Err(reason(&error));
                }
            }
            self.flush()?;
        }
    }

    fn send(&mut self, parts: [&[u8]; 2]) -> io::Result<usize> {
        let taken = self.session.writer().write_vectored(&parts.map(io::IoSlice::new))?;
        self.flush()?;
        if taken == 0 && parts.iter().any(|part| !part.is_empty()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket(self.fd.as_fd())) {
                Ok(_) => {}
                Err(error) if channel::would_block(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn is_holding(&self) -> bool {
        self.held > 0
    }
}

/// What moves the ciphered bytes.
struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(channel::receive(self.0, into)?)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[io::IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        Ok(channel::send(self.0, parts)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What was found, and what to do.
fn reason(error: &Error) -> io::Error {
    let text = match error {
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => {
            "the other side does not show this domain's certificate; give it the domain's key file"
                .into()
        }
        Error::AlertReceived(alert) => format!(
            "the other side ended TLS ({alert:?}): do both have the same key file of the domain?"
        ),
        Error::InvalidMessage(_) => {
            "the other side does not speak TLS; give both the same --wire".into()
        }
        _ => format!("TLS: {error}"),
    };
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use std::os::unix::net::UnixStream;

    fn key() -> Key {
        let made = rcgen::generate_simple_self_signed([NAME.to_string()]).unwrap();
        let secret = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let (domain, text) = (None, String::new());
        Key { domain, certificate: made.cert.der().clone(), secret: secret.into(), text }
    }

    /// Who shows the domain's certificate with a key of its own.
    fn thief(certificate: &CertificateDer<'static>) -> Arc<SingleCertAndKey> {
        let provider = rustls::crypto::ring::default_provider();
        let secret = provider.key_provider.load_private_key(key().secret).unwrap();
        Arc::new(CertifiedKey::new(vec![certificate.clone()], secret).into())
    }

    /// What becomes of a handshake: a greeting each way, or why not, on either side.
    fn handshake(asker: &Tls, answerer: &Tls) -> Result<(), Vec<String>> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut sides =
            [asker.asker(ours.into()).unwrap(), answerer.answerer(theirs.into()).unwrap()];
        let (mut greeted, mut reasons) = ([false; 2], Vec::new());
        for side in &mut sides {
            assert_eq!(side.send([b"hello", b""]).unwrap(), 5);
        }
        for _ in 0..10 {
            for (side, greeted) in sides.iter_mut().zip(&mut greeted) {
                match side.receive(&mut [0; 64]) {
                    Ok(bytes) => *greeted |= bytes == 5,
                    Err(error) if channel::would_block(&error) => {}
                    Err(error) => reasons.push(error.to_string()),
                }
            }
        }
        if greeted == [true; 2] && reasons.is_empty() { Ok(()) } else { Err(reasons) }
    }

    #[test]
    fn a_certificate_without_its_key_is_of_no_use() {
        let ours = key();
        let right = Tls::new(&ours).unwrap();
        assert_eq!(handshake(&right, &right), Ok(()));

        let thief = thief(&ours.certificate);
        let mut asker = (*right.asker).clone();
        asker.client_auth_cert_resolver = Arc::clone(&thief) as _;
        let asker = Tls { asker: Arc::new(asker), ..right.clone() };
        let reasons = handshake(&asker, &right).unwrap_err();
        assert!(reasons.iter().any(|reason| reason.contains("this domain's")), "{reasons:?}");

        let mut answerer = (*right.answerer).clone();
        answerer.cert_resolver = thief;
        let answerer = Tls { answerer: Arc::new(answerer), ..right.clone() };
        let reasons = handshake(&right, &answerer).unwrap_err();
        assert!(reasons.iter().any(|reason| reason.contains("this domain's")), "{reasons:?}");
    }

    #[test]
    fn another_domains_certificate_is_refused_by_each_side() {
        let (ours, theirs) = (Tls::new(&key()).unwrap(), Tls::new(&key()).unwrap());
        let mixed = |asker: &Tls, answerer: &Tls| Tls {
            asker: Arc::clone(&asker.asker),
            answerer: Arc::clone(&answerer.answerer),
            text: Arc::clone(&asker.text),
        };
        for (asker, answerer) in [(&ours, &theirs), (&theirs, &ours)] {
            assert!(handshake(&mixed(asker, asker), &mixed(answerer, answerer)).is_err());
        }
        assert_eq!(handshake(&theirs, &theirs), Ok(()));
    }
}
