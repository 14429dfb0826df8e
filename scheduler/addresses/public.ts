import { BlockList, isIPv4, isIPv6 } from 'node:net';

/**
 * Address ranges outside the public internet (RFC 6890 and the IANA registries): "this network" (`0.0.0.0`), private networks, carrier-grade NAT,
 * loopback, link-local addresses (cloud providers serve credentials there), benchmarks, documentation, multicast and reserved addresses.
 */
const NOT_PUBLIC_IPV4: readonly (readonly [network: string, prefix: number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  // Azure serves the settings and keys of each of its virtual machines at this address. No registry lists the address as reserved.
  ['168.63.129.16', 32],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 3],
];

/** Only global unicast IPv6 is public, except documentation and ranges that embed an IPv4 address (Teredo, 6to4). */
const PUBLIC_IPV6: readonly [network: string, prefix: number] = ['2000::', 3];
const NOT_PUBLIC_IPV6: readonly (readonly [network: string, prefix: number])[] = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
];

const notPublic = new BlockList();
for (const [network, prefix] of NOT_PUBLIC_IPV4) notPublic.addSubnet(network, prefix, 'ipv4');
for (const [network, prefix] of NOT_PUBLIC_IPV6) notPublic.addSubnet(network, prefix, 'ipv6');
const globalUnicast = new BlockList();
globalUnicast.addSubnet(...PUBLIC_IPV6, 'ipv6');

/** True for a public IP address; false for any other text. IPv4 addresses written as IPv6 are never public. */
export function isPublicAddress(address: string): boolean {
  if (isIPv4(address)) return !notPublic.check(address, 'ipv4');
  return isIPv6(address) && globalUnicast.check(address, 'ipv6') && !notPublic.check(address, 'ipv6');
}
