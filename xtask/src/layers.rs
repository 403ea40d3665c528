//! The permitted dependencies between crates: ARCHITECTURE.md's table, as a check.
//!
//! Three rules. A workspace crate's direct dependencies are exactly among those in its row, so that
//! a new one is a decision made here. Some crates may not even be reached through others: pure
//! crates stay free of sockets and runtimes, whatever their dependencies grow into. And inside a
//! crate no more than a few files import each other in a circle ([`circles`]).

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

use crate::{circles, error::TaskError, option_words, step::root};

/// One crate's row.
struct Layer {
    name: &'static str,
    /// Crates that it may depend on directly.
    may: &'static [&'static str],
    /// Crates that it may not reach through anything.
    never: &'static [&'static str],
}

const RUNTIMES: &[&str] =
    &["tokio", "mio", "socket2", "quinn", "quinn-proto", "rustls", "yamux", "async-std", "smol"];
const TALK: &[&str] = &["clap", "clap_builder", "tracing-subscriber", "dirs", "home", "signal-hook"];

const LAYERS: &[Layer] = &[
    Layer {
        name: "dsync-delta",
        may: &["blake3", "xxhash-rust", "rayon", "thiserror"],
        never: &[
            "bytes",
            "rustix",
            "tracing",
            "log",
            "dsync-wire",
            "dsync-fs",
            "dsync-transport",
            "dsync-engine",
        ],
    },
    Layer {
        name: "dsync-delta-c",
        may: &["dsync-delta"],
        never: &["rustix", "tracing", "log", "dsync-wire", "dsync-fs", "dsync-transport", "dsync-engine"],
    },
    Layer {
        name: "dsync-wire",
        may: &["dsync-delta", "bytes", "zstd", "lz4_flex", "serde", "serde_json", "thiserror", "nix"],
        never: &["rustix", "tracing", "log", "dsync-fs", "dsync-transport", "dsync-engine"],
    },
    Layer {
        name: "dsync-fs",
        may: &[
            "rustix",
            "linux-raw-sys",
            "nix",
            "regex",
            "ignore",
            "encoding_rs",
            "memmap2",
            "xxhash-rust",
            "thiserror",
        ],
        never: &["tracing", "dsync-delta", "dsync-wire", "dsync-transport", "dsync-engine"],
    },
    Layer {
        name: "dsync-transport",
        may: &[
            "dsync-wire",
            "bytes",
            "quinn",
            "quinn-proto",
            "rustls",
            "aws-lc-rs",
            "tokio",
            "nix",
            "thiserror",
            "libc",
            "tracing",
            "getrandom",
            "rustix",
            "socket2",
            "zeroize",
        ],
        never: &["dsync-fs", "dsync-engine"],
    },
    Layer {
        name: "dsync-engine",
        may: &[
            "dsync-delta",
            "dsync-wire",
            "dsync-fs",
            "dsync-transport",
            "crossbeam-channel",
            "rayon",
            "tracing",
            "thiserror",
            "bytes",
            "getrandom",
            "serde",
        ],
        never: &[],
    },
    Layer {
        name: "dsync-cli",
        may: &[
            "dsync-engine",
            "aws-lc-rs",
            "clap",
            "clap_complete",
            "clap_mangen",
            "signal-hook",
            "shlex",
            "unicode-width",
            "jiff",
            "landlock",
            "seccompiler",
            "libc",
            "nix",
            "rustix",
            "serde",
            "serde_json",
            "strsim",
            "sd-notify",
            "listenfd",
            "prometheus-client",
            "toml",
            "tracing",
            "tracing-subscriber",
            "zeroize",
        ],
        never: &[],
    },
];

/// Normal dependencies of each package, by name.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Checks the workspace.
///
/// # Errors
/// [`TaskError::Layers`] names every edge that is not allowed, [`TaskError::Circles`] every circle that is too large.
pub(crate) fn run(_args: &[String]) -> Result<(), TaskError> {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).exec()?;
    let breaches = breaches(&graph(&metadata), LAYERS);
    if !breaches.is_empty() {
        return Err(TaskError::Layers { breaches });
    }
    println!("layers: {} crates keep to their rows", LAYERS.len());
    option_words::check(&Vec::from_iter(crates().filter(|&name| name != "dsync-cli")))?;
    circles::check(&Vec::from_iter(crates()))
}

/// Returns the crates that are shipped.
pub(crate) fn crates() -> impl Iterator<Item = &'static str> {
    LAYERS.iter().map(|layer| layer.name)
}

fn graph(metadata: &Metadata) -> Graph {
    let name = |id: &PackageId| metadata[id].name.to_string();
    let mut graph = Graph::new();
    for node in metadata.resolve.iter().flat_map(|resolve| &resolve.nodes) {
        let normal = node.deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| matches!(kind.kind, DependencyKind::Normal))
        });
        graph.entry(name(&node.id)).or_default().extend(normal.map(|dependency| name(&dependency.pkg)));
    }
    graph
}

fn breaches(graph: &Graph, layers: &[Layer]) -> Vec<String> {
    let none = BTreeSet::new();
    let mut found = Vec::new();
    for layer in layers {
        let Some(direct) = graph.get(layer.name) else {
            found.push(format!("{}: no such crate in the workspace", layer.name));
            continue;
        };
        let strangers = direct.iter().filter(|name| !layer.may.contains(&name.as_str()));
        found.extend(
            strangers.map(|name| format!("{} -> {name}: not among what it may depend on", layer.name)),
        );
        for (name, path) in reached(graph, layer.name) {
            if is_never(layer, &name) && !direct.contains(&name) {
                found.push(format!("{path}: {} must never reach it", layer.name));
            }
        }
    }
    for (name, direct) in graph.iter().filter(|(name, _)| name.starts_with("dsync-")) {
        let known = layers.iter().any(|layer| layer.name == name)
            || ["dsync-tests", "dsync-product", "dsync-benches"].contains(&&name[..]);
        let shipped = graph.get(name).unwrap_or(&none);
        if !known {
            found.push(format!("{name}: a crate without a row in xtask's table"));
        }
        if shipped.contains("dsync-cli") || direct.contains("xtask") {
            found.push(format!("{name}: nothing may depend on the command or on tasks"));
        }
    }
    found
}

fn is_never(layer: &Layer, name: &str) -> bool {
    let pure = matches!(layer.name, "dsync-delta" | "dsync-delta-c" | "dsync-wire" | "dsync-fs");
    let silent = layer.name != "dsync-cli";
    layer.never.contains(&name) || (pure && RUNTIMES.contains(&name)) || (silent && TALK.contains(&name))
}

/// Returns all crates reachable from one, each with one way to it.
fn reached(graph: &Graph, from: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![(from.to_owned(), from.to_owned())];
    while let Some((name, path)) = pending.pop() {
        for next in graph.get(&name).into_iter().flatten() {
            if !found.contains_key(next) && next != from {
                let path = format!("{path} -> {next}");
                found.insert(next.clone(), path.clone());
                pending.push((next.clone(), path));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph_of(edges: &[(&str, &[&str])]) -> Graph {
        let mut graph: Graph = LAYERS.iter().map(|layer| (layer.name.to_owned(), BTreeSet::new())).collect();
        for (from, to) in edges {
            graph.entry((*from).to_owned()).or_default().extend(to.iter().map(|name| (*name).to_owned()));
        }
        graph
    }

    #[test]
    fn allowed_edges_pass() {
        let graph = graph_of(&[
            ("dsync-wire", &["dsync-delta", "bytes"]),
            ("dsync-engine", &["dsync-wire", "dsync-transport"]),
            ("dsync-transport", &["tokio", "dsync-wire"]),
            ("dsync-cli", &["dsync-engine", "clap"]),
        ]);
        assert_eq!(breaches(&graph, LAYERS), Vec::<String>::new());
    }

    #[test]
    fn direct_edge_upwards_is_caught() {
        let found = breaches(&graph_of(&[("dsync-delta", &["dsync-fs"])]), LAYERS);
        assert_eq!(found, ["dsync-delta -> dsync-fs: not among what it may depend on"]);
    }

    #[test]
    fn runtime_behind_an_allowed_dependency_is_caught() {
        let found = breaches(&graph_of(&[("dsync-delta", &["rayon"]), ("rayon", &["tokio"])]), LAYERS);
        assert_eq!(found, ["dsync-delta -> rayon -> tokio: dsync-delta must never reach it"]);
    }

    #[test]
    fn command_line_in_the_engine_is_caught() {
        let found = breaches(&graph_of(&[("dsync-engine", &["clap"])]), LAYERS);
        assert_eq!(found, ["dsync-engine -> clap: not among what it may depend on"]);
    }

    #[test]
    fn command_may_not_reach_past_the_engine() {
        let found = breaches(&graph_of(&[("dsync-cli", &["dsync-fs"])]), LAYERS);
        assert_eq!(found, ["dsync-cli -> dsync-fs: not among what it may depend on"]);
    }

    #[test]
    fn crate_without_a_row_is_caught() {
        let found = breaches(&graph_of(&[("dsync-new", &[])]), LAYERS);
        assert_eq!(found, ["dsync-new: a crate without a row in xtask's table"]);
    }
}
