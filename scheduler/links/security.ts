import { connect, createServer, isIP, isIPv6, type Server, type Socket } from 'node:net';
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from 'node:tls';

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

/**
 * Parses an address: `host:port`, optionally after `tcp://`, is TCP; anything else, optionally after `unix:` or `unix://`, is a unix socket's path.
 * An IPv6 host may stand in brackets; an empty host means 127.0.0.1.
 */
export function socketAddress(address: string): { path: string } | { host: string; port: number } {
  const tcp = /^(?:tcp:\/\/)?\[?([^/]*?)\]?:(\d+)$/.exec(address);
  if (!tcp) return { path: address.replace(/^unix:(?:\/\/)?/, '') };
  return { host: tcp[1] || '127.0.0.1', port: Number(tcp[2]) };
}

/** Part of the bound that the connections of one address may take before they give way ahead of older ones of other addresses. */
const ADDRESS_SHARE = 1 / 16;

/**
 * Connections whose peers have proven nothing: no key, no certificate. Every peer that reaches a port can open them, so they are bounded, and the
 * bound refuses no newcomer: the newcomer stays, and the oldest connection gives way. A peer that proves itself needs a moment, and is therefore young.
 *
 * While an address has more than a sixteenth of the bound, the oldest connection of the address with most of them gives way first: a flood from one
 * address ends its own connections. Below the bound, one address may have all connections, since a proxy's clients have the proxy's address.
 *
 * A policy without I/O: the caller closes the connections that `add` returns.
 */
export class UnprovenConnections<T> {
  /** In order of age, oldest first. */
  readonly #addressOf = new Map<T, string>();
  /** In order of age for each address. */
  readonly #byAddress = new Map<string, Set<T>>();
  /** Addresses with more than `#addressShare` connections: fewer than 16 while the bound holds. */
  readonly #crowded = new Set<string>();
  readonly #addressShare: number;

  /** @param max connections that the port may have, of which the caller may subtract others (see `add`) */
  constructor(max: number) {
    this.#addressShare = Math.max(1, Math.floor(max * ADDRESS_SHARE));
  }

  get count(): number {
    return this.#addressOf.size;
  }

  /**
   * Adds a connection, as the youngest one.
   *
   * @param remoteAddress IP address of the peer
   * @param room maximum number of connections here
   * @returns the connections beyond `room`, which are removed here and which the caller closes; never the new one
   */
  add(connection: T, remoteAddress: string, room: number): T[] {
    const address = networkOf(remoteAddress);
    const neighbours = this.#byAddress.get(address) ?? new Set();
    this.#byAddress.set(address, neighbours);
    this.#addressOf.set(connection, address);
    neighbours.add(connection);
    if (neighbours.size > this.#addressShare) this.#crowded.add(address);
    const dropped: T[] = [];
    while (this.count > Math.max(1, room)) {
      const oldest = this.#next(connection);
      if (oldest === undefined) break;
      this.remove(oldest);
      dropped.push(oldest);
    }
    return dropped;
  }

  /** Removes a connection that is closed, or whose peer has proven itself; nothing happens when it is not here. */
  remove(connection: T): void {
    const address = this.#addressOf.get(connection);
    if (address === undefined) return;
    this.#addressOf.delete(connection);
    const neighbours = this.#byAddress.get(address);
    neighbours?.delete(connection);
    const left = neighbours?.size ?? 0;
    if (left === 0) this.#byAddress.delete(address);
    if (left <= this.#addressShare) this.#crowded.delete(address);
  }

  /** The connection that gives way next, other than `newcomer`. */
  #next(newcomer: T): T | undefined {
    let crowd: ReadonlySet<T> | undefined;
    for (const address of this.#crowded) {
      const neighbours = this.#byAddress.get(address);
      if (neighbours && neighbours.size > (crowd?.size ?? 0)) crowd = neighbours;
    }
    // A crowd has two or more connections, and the newcomer is the youngest of all.
    const [oldest] = crowd ?? this.#addressOf.keys();
    return oldest === newcomer ? undefined : oldest;
  }
}

/** Leading groups of an IPv6 address that name a network; one host may have every address of its network (RFC 7421). */
const NETWORK_GROUPS = 4;
const GROUPS = 8;

/** What counts as one address: an IPv4 address, also when IPv6 carries it, or the /64 network of an IPv6 address. */
export function networkOf(address: string): string {
  const [mapped] = /\d+\.\d+\.\d+\.\d+$/.exec(address) ?? [];
  if (mapped !== undefined) return mapped;
  if (!isIPv6(address)) return address;
  const [head = '', tail] = address.replace(/%.*$/, '').split('::', 2);
  const leading = head === '' ? [] : head.split(':');
  const trailing = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = Array.from({ length: Math.max(0, GROUPS - leading.length - trailing.length) }, () => '0');
  return [...leading, ...zeros, ...trailing]
    .slice(0, NETWORK_GROUPS)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':');
}
