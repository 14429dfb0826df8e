import { connect, createServer, isIP, type Server, type Socket } from 'node:net';
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from 'node:tls';
import { socketAddress } from './socket-address.ts';
import { UnprovenConnections } from './unproven.ts';

/** The certificate that a machine shows on links to other machines, and the certificates that it accepts. */
export interface LinkSecurity {
  /** Private key, PEM. */
  readonly key: string;
  /** Certificate, PEM. */
  readonly certificate: string;
  /** The only machine that may answer a connection of this side; without it, any registered machine may. */
  readonly peer?: string;
  /**
   * Name of the registered machine whose certificate has this SHA-256 fingerprint (`AB:CD:…`); undefined when no machine has it.
   */
  machineOf(fingerprint: string): string | undefined;
  /** Calls `listener` after the accepted certificates have changed; returns a function that removes the listener. */
  onChange(listener: () => void): () => void;
  /** Called with the reason when a connection is refused or ended, for the log. */
  refused(why: string): void;
}

/** Connections of one server that have shown no accepted certificate yet. Each takes a descriptor until its handshake or `HANDSHAKE_MS` is over. */
const MAX_UNPROVEN = 256;
/** Longest wait of a server for a peer's TLS handshake, in milliseconds. */
const HANDSHAKE_MS = 5000;
/**
 * Silence after which the kernel probes whether the peer's machine is still there. It reports a lost machine about ten
 * seconds later.
 */
const KEEP_ALIVE_MS = 1000;

/** The same security, restricted to connections to the machine `peer`: they accept no other machine's certificate. */
export function toMachine(security: LinkSecurity, peer: string): LinkSecurity {
  return {
    key: security.key,
    certificate: security.certificate,
    peer,
    machineOf: (fingerprint) => security.machineOf(fingerprint),
    onChange: (listener) => security.onChange(listener),
    refused: (why) => security.refused(why),
  };
}

/**
 * A server of connections. At a network address with `security`, both sides show certificates over TLS 1.3, and `accept` gets only connections
 * of registered machines; a connection ends when the peer's machine is removed. When too many connections are without a certificate, one of them gives
 * way to each new one (`UnprovenConnections`). A unix socket stays plain.
 * @param handshakeMs longest wait for a peer's handshake; a process whose thread may be blocked needs more, because the block delays the handshake
 * @throws Error when other machines reach the address and there is no `security`
 */
export function linkServer(
  address: string,
  accept: (socket: Socket) => void,
  security?: LinkSecurity,
  handshakeMs = HANDSHAKE_MS,
): Server {
  if (!isSecured(address, security)) return createServer(accept);
  const server = createTlsServer(
    {
      ...tlsOptions(security),
      requestCert: true,
      handshakeTimeout: handshakeMs,
    },
    (socket) => {
      proven(socket);
      if (admit(socket, peerOf(socket), security)) accept(socket);
    },
  );
  const proven = boundUnproven(server);
  // The peer speaks no TLS, presents no usable certificate, or has closed the connection.
  server.on('tlsClientError', (error: NodeJS.ErrnoException, socket) => {
    security.refused(
      `a connection from ${socket.remoteAddress ?? 'a peer that has gone'}: ${error.code ?? error.message}`,
    );
    socket.destroy();
  });
  return server;
}

/**
 * Connects to a unix socket's path or `host:port`. `ready` is called once bytes may be sent: at a network address with `security`, after the
 * server has shown an accepted certificate. The caller bounds the wait.
 * @param server kind of process that answers at the address, for the log: `GPU host`
 * @throws Error when the address is that of another machine and there is no `security`
 */
export function linkSocket(server: string, address: string, ready: () => void, security?: LinkSecurity): Socket {
  if (!isSecured(address, security)) return connect(socketAddress(address), ready);
  const socket: TLSSocket = connectTls({ ...socketAddress(address), ...tlsOptions(security) }, () => {
    if (admit(socket, `the ${server} at ${address}`, security, security.peer)) ready();
  });
  return socket;
}

/**
 * Bounds the connections of a TLS server that are before the end of their handshake. Returns the function to call with a connection after its
 * handshake.
 */
function boundUnproven(server: Server): (socket: Socket) => void {
  const unproven = new UnprovenConnections<Socket>(MAX_UNPROVEN);
  /** The connections below TLS by the address and port of their peers, which both layers know. */
  const byPeer = new Map<string, Socket>();
  server.on('connection', (socket: Socket) => {
    const { remoteAddress = '' } = socket;
    const peer = nameOf(socket);
    byPeer.set(peer, socket);
    socket.once('close', () => {
      unproven.remove(socket);
      if (byPeer.get(peer) === socket) byPeer.delete(peer);
    });
    for (const dropped of unproven.add(socket, remoteAddress, MAX_UNPROVEN)) dropped.destroy();
  });
  return (socket) => {
    const connection = byPeer.get(nameOf(socket));
    if (connection) unproven.remove(connection);
  };
}

function nameOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

/** Certificates are self-signed: the fingerprint decides in place of a chain. TLS proves that the peer has the certificate's key. */
function tlsOptions({ key, certificate }: LinkSecurity) {
  return { key, cert: certificate, rejectUnauthorized: false, minVersion: 'TLSv1.3' } as const;
}

/**
 * Returns true when the peer's certificate is accepted. Destroys the socket when the certificate is refused, now or after a later change of the
 * accepted certificates.
 */
function admit(socket: TLSSocket, peer: string, security: LinkSecurity, expected?: string): boolean {
  const fingerprint = socket.getPeerX509Certificate()?.fingerprint256;
  const destroyIfRefused = () => {
    const what = refusal(fingerprint, security, expected);
    if (what === null) return false;
    const why = `${peer} shows ${what}`;
    security.refused(why);
    socket.destroy(new Error(why));
    return true;
  };
  // An `error` event without a listener would end the process, and sockets of a server have no listener yet.
  socket.on('error', () => undefined);
  if (destroyIfRefused()) return false;
  const removeListener = security.onChange(destroyIfRefused);
  socket.once('close', removeListener);
  socket.setKeepAlive(true, KEEP_ALIVE_MS);
  socket.setNoDelay(true);
  return true;
}

/** The reason to refuse a certificate, as the end of a sentence; null when the certificate is accepted. */
function refusal(fingerprint: string | undefined, security: LinkSecurity, expected?: string): string | null {
  if (fingerprint === undefined) return 'no certificate';
  const machine = security.machineOf(fingerprint);
  if (machine === undefined) return 'a certificate of no registered machine';
  return expected === undefined || machine === expected ? null : `the certificate of ${machine}, not of ${expected}`;
}

function peerOf(socket: Socket): string {
  return `a connection from ${socket.remoteAddress ?? 'a peer that has gone'}`;
}

function isSecured(address: string, security: LinkSecurity | undefined): security is LinkSecurity {
  const target = socketAddress(address);
  if ('path' in target) return false;
  if (security) return true;
  if (isLoopback(target.host)) return false;
  throw new Error(`Links to other machines need certificates, and there are none for ${address}.`);
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}
