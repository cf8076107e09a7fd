//! Questions about requests over HTTP, asked of a real `ratelimit serve`.

use ratelimit_tests::service::Service;

const POLICY: &str = "[[api]]\nname = \"search\"\nlimits = [\"15/s\"]\n";

#[test]
fn every_protocol_has_a_listener() {
    let service = Service::start(POLICY);
    for address in [service.http, service.grpc, service.resp] {
        std::net::TcpStream::connect(address).expect("somebody listens");
    }
    std::os::unix::net::UnixStream::connect(service.http_socket()).expect("somebody listens");
}
