//! What the congestion controller costs where there is no congestion: bytes per second through loopback,
//! beside quinn's CUBIC, in turns. Both ends share the machine.
//!
//! 2-core x86-64 virtual machine (Intel Xeon), Linux 6.18, busy with other work, MTU of the loopback route, dev
//! profile (this crate at opt-level 1, quinn at 3), 1 GiB over 16 lanes, 7 turns: ours 9.8 to 14.7 Gbit/s,
//! median 11.9, 0 to 515 packets lost per turn; CUBIC 10.0 to 12.7, median 11.4, 1,374 to 4,173 lost. The
//! difference is within the noise; the losses are socket buffers, which CUBIC fills and ours does not.
//!
//! `cargo test -p dsync-transport loopback_beside_cubic -- --ignored --nocapture`

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use quinn::{Connection, Endpoint, TokioRuntime, TransportConfig, congestion::CubicConfig};
use tokio::{sync::oneshot, task::JoinSet};

use super::{IDLE, Reactor};
use crate::{identity::Identity, quic::settings};

#[test]
#[ignore = "a measurement"]
fn loopback_beside_cubic() {
    let mut seconds = [Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        for (kind, taken) in seconds.iter_mut().enumerate() {
            let (rate, lost) = transfer(kind == 1);
            println!("{}: {rate:.2} Gbit/s, {lost} packets lost", ["ours", "cubic"][kind]);
            taken.push(rate);
        }
    }
    for (kind, rates) in seconds.iter_mut().enumerate() {
        rates.sort_by(f64::total_cmp);
        println!("{}: median {:.2} Gbit/s", ["ours", "cubic"][kind], rates[rates.len() / 2]);
    }
}

/// Sends [`TOTAL`] bytes; Gbit/s and packets lost.
fn transfer(cubic: bool) -> (f64, u64) {
    let peer = Some(Ipv4Addr::LOCALHOST.into());
    let transport = || {
        let mut config = settings::transport_config(IDLE, peer);
        if cubic {
            config.congestion_controller_factory(Arc::new(CubicConfig::default()));
        }
        Arc::new(config)
    };
    let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let (far, near) = (Reactor::start().unwrap(), Reactor::start().unwrap());
    let tls = server.server_config(client.fingerprint()).unwrap();
    let (port, told) = oneshot::channel();
    let server_transport: Arc<TransportConfig> = transport();
    far.spawn(async move {
        let config = settings::server(tls, server_transport).unwrap();
        let endpoint = settings::endpoint(peer);
        let socket = settings::bind_any(None).unwrap();
        let endpoint = Endpoint::new(endpoint, Some(config), socket, Arc::new(TokioRuntime)).unwrap();
        port.send(endpoint.local_addr().unwrap().port()).unwrap();
        drain(endpoint.accept().await.unwrap().await.unwrap()).await;
    });
    let (tls, _) = client.client_config(server.fingerprint()).unwrap();
    let config = settings::client(tls, transport()).unwrap();
    near.run(async move {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, told.await.unwrap()));
        let socket = settings::bind_for(address).unwrap();
        let endpoint = Endpoint::new(settings::endpoint(peer), None, socket, Arc::new(TokioRuntime)).unwrap();
        let connection = endpoint.connect_with(config, address, "dsync.invalid").unwrap().await.unwrap();
        let begun = Instant::now();
        fill(&connection).await;
        let rate = (8 * TOTAL) as f64 / begun.elapsed().as_secs_f64() / 1e9;
        let lost = connection.stats().path.lost_packets;
        connection.close(0_u8.into(), b"");
        tokio::time::sleep(Duration::from_millis(20)).await;
        (rate, lost)
    })
    .unwrap()
}

async fn fill(connection: &Connection) {
    let piece = Bytes::from(vec![0x5a; PIECE]);
    let mut lanes = JoinSet::new();
    for _ in 0..LANES {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        let piece = piece.clone();
        lanes.spawn(async move {
            for _ in 0..TOTAL / (LANES * PIECE) {
                send.write_chunk(piece.clone()).await.unwrap();
            }
            send.finish().unwrap();
            // The other end answers with the end of its half when it has everything.
            receive.read_to_end(1).await.unwrap();
        });
    }
    while lanes.join_next().await.is_some() {}
}

async fn drain(connection: Connection) {
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            while receive.read_chunk(PIECE, true).await.unwrap().is_some() {}
            send.finish().unwrap();
        });
    }
}

const TURNS: usize = 7;
const TOTAL: usize = 1 << 30;
const LANES: usize = 16;
const PIECE: usize = 256 << 10;
