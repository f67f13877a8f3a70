//! Reads `Cargo.lock` for a second TLS stack. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The crates that tie TLS to HTTP: each in one version.
const STACK: [&str; 4] = ["rustls", "hyper-rustls", "tokio-rustls", "rustls-webpki"];
/// Other ways to speak TLS.
const OTHERS: [&str; 6] = [
    "native-tls",
    "tokio-native-tls",
    "hyper-tls",
    "openssl",
    "boring",
    "s2n-tls",
];

#[derive(Deserialize)]
struct Lock {
    #[serde(default)]
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
}

/// Returns the crates that make more than one TLS stack: none, where all is well.
pub(crate) fn second_tls(lock: &str) -> Result<Vec<String>, toml::de::Error> {
    let lock: Lock = toml::from_str(lock)?;
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in lock.package {
        versions
            .entry(package.name)
            .or_default()
            .push(package.version);
    }
    let several = STACK.map(|name| (name, 2)).into_iter();
    let found = several.chain(OTHERS.map(|name| (name, 1)));
    let found = found.filter_map(|(name, least)| {
        let found = versions.get(name).filter(|found| found.len() >= least)?;
        Some(format!("{name} {}", found.join(" and ")))
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(packages: &[(&str, &str)]) -> String {
        let packages = packages.iter().map(|(name, version)| {
            format!(
                "[[package]]\nname = \"{name}\"\nversion = \"{version}\"\ndependencies = [\"a\"]\n"
            )
        });
        format!("version = 4\n{}", packages.collect::<String>())
    }

    #[test]
    fn the_sdks_default_features_are_found() {
        let one = [
            ("rustls", "0.23.46"),
            ("hyper-rustls", "0.27.10"),
            ("openssl-probe", "0.2.2"),
        ];
        assert_eq!(second_tls(&lock(&one)), Ok(Vec::new()));
        let two = [
            &one[..],
            &[("rustls", "0.21.12"), ("hyper-rustls", "0.24.2")],
        ]
        .concat();
        let found = second_tls(&lock(&two)).unwrap();
        assert_eq!(
            found,
            [
                "rustls 0.23.46 and 0.21.12",
                "hyper-rustls 0.27.10 and 0.24.2"
            ]
        );
        let other = [&one[..], &[("native-tls", "0.2.14")]].concat();
        assert_eq!(second_tls(&lock(&other)).unwrap(), ["native-tls 0.2.14"]);
        assert!(second_tls("no lock").is_err());
    }
}
