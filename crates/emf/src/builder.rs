//! The settings of an exporter, and its installation.

use std::env;
use std::fmt;
use std::io::{Write, stdout};

use lambda_idempotency::metrics::describe;

use crate::exporter::Exporter;

/// The environment variable that names the CloudWatch namespace.
pub const NAMESPACE_VARIABLE: &str = "METRIC_NAMESPACE";

/// The CloudWatch namespace where nothing names one; the default of the alarms in `infra/`, too.
pub const DEFAULT_NAMESPACE: &str = "LambdaIdempotency";

/// The number of characters that CloudWatch takes for a namespace.
const MOST_NAMESPACE_CHARS: usize = 255;

/// The settings of an [`Exporter`].
///
/// ```
/// use lambda_idempotency_emf::Builder;
///
/// let metrics = Builder::default().namespace("Shop").output(std::io::stderr()).install()?;
/// metrics::counter!("orders").increment(1);
/// metrics.flush();
/// # Ok::<(), lambda_idempotency_emf::InstallError>(())
/// ```
pub struct Builder {
    namespace: Option<String>,
    output: Box<dyn Write + Send>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            namespace: None,
            output: Box::new(stdout()),
        }
    }
}

impl Builder {
    /// Sets the CloudWatch namespace. Without it, it is the value of [`NAMESPACE_VARIABLE`], or
    /// [`DEFAULT_NAMESPACE`].
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self {
            namespace: Some(namespace.into()),
            ..self
        }
    }

    /// Sets where documents are written, one a line: a file, or a connection to the CloudWatch
    /// agent. The default is standard output, which is what Lambda reads.
    pub fn output(self, output: impl Write + Send + 'static) -> Self {
        Self {
            output: Box::new(output),
            ..self
        }
    }

    /// Makes the exporter without installing it: for [`Exporter::recorder`] beside another recorder.
    ///
    /// # Errors
    ///
    /// [`InstallError::Namespace`].
    pub fn build(self) -> Result<Exporter, InstallError> {
        let from_environment = || {
            let variable = env::var(NAMESPACE_VARIABLE).ok();
            variable.filter(|namespace| !namespace.is_empty())
        };
        let namespace = self.namespace.or_else(from_environment);
        let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        if !is_accepted(&namespace) {
            return Err(InstallError::Namespace(namespace));
        }
        let exporter = Exporter::new(namespace, self.output);
        metrics::with_local_recorder(&exporter.recorder(), describe);
        Ok(exporter)
    }

    /// Makes the exporter and installs it as the recorder of the process.
    ///
    /// # Errors
    ///
    /// When the process has a recorder already, or the namespace is none that CloudWatch takes.
    pub fn install(self) -> Result<Exporter, InstallError> {
        let exporter = self.build()?;
        metrics::set_global_recorder(exporter.recorder())
            .map_err(|_| InstallError::AlreadyInstalled)?;
        Ok(exporter)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// CloudWatch drops documents of any other namespace without a word.
fn is_accepted(namespace: &str) -> bool {
    let is_accepted = |c: char| c.is_ascii_alphanumeric() || " .-_/#:".contains(c);
    (1..=MOST_NAMESPACE_CHARS).contains(&namespace.len())
        && namespace.chars().all(is_accepted)
        && !namespace.trim().is_empty()
        && !namespace.starts_with(':')
        && !namespace.starts_with("AWS/")
}

/// Links an error's text to its section of the guide of `lambda-idempotency`.
macro_rules! see {
    ($section:literal) => {
        concat!(
            ". See https://docs.rs/lambda-idempotency/latest/lambda_idempotency/guide/errors/index.html#",
            $section
        )
    };
}

/// The reason why an exporter could not be installed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The process has a recorder already.
    #[error(
        "the process has a metrics recorder already: install one only, or join both with `Exporter::recorder`{}", see!("metrics-recorder")
    )]
    AlreadyInstalled,
    /// CloudWatch doesn't take this namespace.
    #[error(
        "{:?} is no CloudWatch namespace: use 1 to 255 letters, digits and ` .-_/#:`, not `:` first, nor `AWS/`{}", .0, see!("metrics-namespace")
    )]
    Namespace(String),
}

/// Rust prints the `Debug` of what `main` returns.
impl fmt::Debug for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
