//! The domain's key file: the domain's name, one certificate, signed by itself, and its key, in
//! PEM. Every node of the domain has the same file, and a process that has it is a node: so it is
//! its owner's alone. The name is for people: nodes go by the certificate.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

/// Bytes of a key file, at most: this build's are of about 750.
const BYTES: u64 = 16384;

/// What the line begins with that names the domain.
const DOMAIN: &str = "Domain: ";

/// What the nodes of a domain show each other.
pub struct Key {
    /// The domain's name; `None`: its file is an older build's, which had none.
    pub(super) domain: Option<String>,
    pub(super) certificate: CertificateDer<'static>,
    pub(super) secret: PrivateKeyDer<'static>,
    /// The file's.
    pub(super) text: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Key of a certificate of {} bytes", self.certificate.len())
    }
}

impl Key {
    /// Makes a domain's new key, and its file, which must not exist.
    pub fn create(path: &Path, domain: &str) -> io::Result<Self> {
        let made = rcgen::generate_simple_self_signed([super::tls::NAME.to_string()])
            .map_err(|error| io::Error::other(format!("cannot make a key: {error}")))?;
        let (certificate, secret) = (made.cert.pem(), made.signing_key.serialize_pem());
        let text = format!("{DOMAIN}{domain}\n{certificate}{secret}");
        let wrong = |error: io::Error| {
            let advice = if error.kind() == io::ErrorKind::AlreadyExists {
                "; a new key would shut out the nodes that have this one: copy it, or remove it"
            } else {
                ""
            };
            said(path, error.kind(), &format!("cannot be made: {error}{advice}"))
        };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path).map_err(wrong)?;
        if let Err(error) = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()) {
            // What is there is of no use to anybody.
            let _ = std::fs::remove_file(path);
            return Err(wrong(error));
        }
        Self::of_pem(path, text.as_bytes())
    }

    /// Reads a domain's key file.
    pub fn load(path: &Path) -> io::Result<Self> {
        let wrong = |error: io::Error| {
            let advice = if error.kind() == io::ErrorKind::NotFound {
                "; copy it from another node of the domain"
            } else {
                ""
            };
            said(path, error.kind(), &format!("cannot be read: {error}{advice}"))
        };
        let file = File::open(path).map_err(wrong)?;
        let found = file.metadata().map_err(wrong)?;
        if !found.is_file() {
            return Err(invalid(path, "is no regular file; give the domain's key file"));
        }
        if found.mode() & 0o077 != 0 {
            let mode = found.mode() & 0o7777;
            let text = format!(
                "has mode {mode:04o}, so others may have its key; make it 0600 (chmod 600)"
            );
            return Err(said(path, io::ErrorKind::PermissionDenied, &text));
        }
        let mut bytes = Vec::new();
        file.take(BYTES + 1).read_to_end(&mut bytes).map_err(wrong)?;
        if bytes.len() as u64 > BYTES {
            return Err(invalid(path, "is longer than any key file; give the domain's"));
        }
        Self::of_pem(path, &bytes)
    }

    /// Refuses to be the key of a domain that the file does not name.
    pub fn check_domain(&self, path: &Path, domain: &str) -> io::Result<()> {
        match &self.domain {
            Some(other) if other != domain => {
                let text = format!(
                    "is the key of the domain {other}, not of {domain}; give the one of {domain}, \
                     or --domain {other}"
                );
                Err(invalid(path, &text))
            }
            _ => Ok(()),
        }
    }

    /// What a key file has, as the node gives it to a process of its user.
    pub fn of_text(text: &str) -> io::Result<Self> {
        Self::of_pem(Path::new("(of the node)"), text.as_bytes())
    }

    fn of_pem(path: &Path, bytes: &[u8]) -> io::Result<Self> {
        let (mut certificates, mut secrets) = (Vec::new(), Vec::new());
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes) {
            match section {
                Ok((SectionKind::Certificate, der)) => certificates.push(der),
                Ok((SectionKind::PrivateKey, der)) => secrets.push(der),
                Ok((kind, _)) => {
                    let text = format!(
                        "has a section {kind:?}; only a certificate and its key \
                                        belong there: copy the file anew"
                    );
                    return Err(invalid(path, &text));
                }
                Err(pem::Error::MissingSectionEnd { .. }) => {
                    return Err(invalid(path, "ends in the middle of a section; copy it anew"));
                }
                Err(error) => {
                    return Err(invalid(path, &format!("is damaged: {error}; copy it anew")));
                }
            }
        }
        let (Some(certificate), Some(secret), 1, 1) =
            (certificates.first(), secrets.first(), certificates.len(), secrets.len())
        else {
            let text = format!(
                "has {} certificates and {} keys, not one of each; copy it anew",
                certificates.len(),
                secrets.len()
            );
            return Err(invalid(path, &text));
        };
        let certificate = CertificateDer::from(certificate.clone());
        let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(secret.clone()));
        let provider = rustls::crypto::ring::default_provider();
        match CertifiedKey::from_der(vec![certificate.clone()], secret.clone_key(), &provider) {
            Ok(_) => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                let domain = text.lines().find_map(|line| line.strip_prefix(DOMAIN));
                let domain = domain.map(|name| name.trim().to_owned());
                Ok(Self { domain, certificate, secret, text })
            }
            Err(error) => {
                let text = format!(
                    "has a key that is not its certificate's, or of no use \
                                    ({error}); copy it anew"
                );
                Err(invalid(path, &text))
            }
        }
    }
}

fn invalid(path: &Path, text: &str) -> io::Error {
    said(path, io::ErrorKind::InvalidData, text)
}

fn said(path: &Path, kind: io::ErrorKind, text: &str) -> io::Error {
    io::Error::new(kind, format!("the key file {} {text}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("solera-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, mode: u32, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn said_of(path: &Path) -> String {
        let text = Key::load(path).unwrap_err().to_string();
        assert!(!text.contains('\n') && text.contains(&path.display().to_string()), "{text}");
        text
    }

    #[test]
    fn a_key_is_made_once_and_its_owners_alone() {
        let folder = Folder::new("key-made");
        let path = folder.0.join("key.pem");
        let made = Key::create(&path, "dm").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let loaded = Key::load(&path).unwrap();
        assert_eq!(loaded.certificate, made.certificate);
        assert_eq!(loaded.secret.secret_der(), made.secret.secret_der());
        let again = Key::create(&path, "dm").unwrap_err().to_string();
        assert!(again.contains("would shut out"), "{again}");
        assert_eq!(Key::load(&path).unwrap().certificate, made.certificate);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let folder = Folder::new("key-wrong");
        let path = folder.0.join("key.pem");
        assert!(said_of(&path).contains("copy it from another node"));
        Key::create(&path, "dm").unwrap();
        let text = std::fs::read(&path).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o620] {
            assert!(said_of(&folder.file("open", mode, &text)).contains("chmod 600"));
        }
        assert!(said_of(&folder.0).contains("no regular file"));
        assert!(said_of(&folder.file("long", 0o600, &vec![b'a'; 20000])).contains("longer"));
        assert!(said_of(&folder.file("none", 0o600, b"hello\n")).contains("0 certificates"));
        let twice = [text.clone(), text.clone()].concat();
        assert!(said_of(&folder.file("twice", 0o600, &twice)).contains("2 certificates"));

        let other = folder.0.join("other.pem");
        Key::create(&other, "other").unwrap();
        let (mine, theirs) = (String::from_utf8(text).unwrap(), std::fs::read(other).unwrap());
        let theirs = String::from_utf8(theirs).unwrap();
        let at = |text: &str| text.find("-----BEGIN PRIVATE").unwrap();
        let mixed = format!("{}{}", &mine[..at(&mine)], &theirs[at(&theirs)..]);
        let text = said_of(&folder.file("mixed", 0o600, mixed.as_bytes()));
        assert!(text.contains("not its certificate's"), "{text}");
    }

    #[test]
    fn a_key_is_of_the_domain_that_its_file_names() {
        let folder = Folder::new("key-domain");
        let path = folder.0.join("key.pem");
        Key::create(&path, "dm").unwrap();
        let key = Key::load(&path).unwrap();
        key.check_domain(&path, "dm").unwrap();
        let said = key.check_domain(&path, "big").unwrap_err().to_string();
        assert!(said.contains("key of the domain dm, not of big"), "{said}");
        let text = std::fs::read_to_string(&path).unwrap();
        let (named, older) = text.split_once('\n').unwrap();
        assert_eq!(named, "Domain: dm");
        let older = Key::load(&folder.file("older", 0o600, older.as_bytes())).unwrap();
        older.check_domain(&path, "big").unwrap();
    }

    #[test]
    fn a_file_cut_off_anywhere_is_refused() {
        let folder = Folder::new("key-cut");
        let path = folder.0.join("key.pem");
        Key::create(&path, "dm").unwrap();
        let text = std::fs::read(&path).unwrap();
        let whole = text.windows(8).rposition(|part| part == b"-----END").unwrap();
        for length in 0..=whole {
            let text = said_of(&folder.file("cut", 0o600, &text[..length]));
            let named = ["copy it anew"].iter().any(|part| text.contains(part));
            assert!(named, "{length} bytes: {text}");
        }
    }
}
