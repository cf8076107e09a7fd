//! Writes the bill of materials of the binary as CycloneDX 1.5: <https://cyclonedx.org/docs/1.5/json/>.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::crates::Crate;
use super::release::Release;

/// Returns the bill of materials. It has no serial number, so that two builds of one commit have equal bills.
pub(super) fn bill(release: &Release, crates: &BTreeMap<(String, String), Crate>) -> Value {
    let is_product = |one: &&Crate| one.name == "ratelimit-user";
    let product = crates.values().find(is_product).map(component);
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.moment,
            "component": product.map(|mut product| {
                product["type"] = "application".into();
                product["name"] = "ratelimit".into();
                product["version"] = release.debian().into();
                product
            }),
        },
        "components": crates.values().filter(|one| !is_product(one)).map(component).collect::<Vec<_>>(),
        "dependencies": crates.values().map(|one| json!({
            "ref": address(&one.name, &one.version),
            "dependsOn": one.uses.iter().map(|(name, version)| address(name, version)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

fn component(one: &Crate) -> Value {
    let address = address(&one.name, &one.version);
    let mut component = json!({
        "type": "library",
        "bom-ref": address,
        "name": one.name,
        "version": one.version,
        "purl": address,
        "licenses": [{ "expression": one.licence }],
    });
    if let Some(checksum) = &one.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if let Some(repository) = &one.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

/// Returns the package URL of a crate.
fn address(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}
