/**
 * Parses an address: `host:port`, optionally after `tcp://`, is TCP; anything else, optionally after `unix:` or `unix://`, is a unix socket's path.
 * An IPv6 host may stand in brackets; an empty host means 127.0.0.1.
 */
export function socketAddress(address: string): { path: string } | { host: string; port: number } {
  const tcp = /^(?:tcp:\/\/)?\[?([^/]*?)\]?:(\d+)$/.exec(address);
  if (!tcp) return { path: address.replace(/^unix:(?:\/\/)?/, '') };
  return { host: tcp[1] || '127.0.0.1', port: Number(tcp[2]) };
}
