/**
 * The network between a client and a server: `node delay-process.ts PORT:ROUND_TRIP_MS…` listens on one port for each argument and passes
 * bytes on after half of the round trip, in both directions. A connection itself opens without delay, so that opening many connections
 * costs a client nothing.
 */
import net from 'node:net';
import { announce } from './child-server.ts';

const ports = await Promise.all(
  process.argv.slice(2).map(async (argument) => {
    const [port = 0, roundTripMs = 0] = argument.split(':').map(Number);
    const server = net.createServer({ noDelay: true, allowHalfOpen: true }, (client) => {
      const upstream = net.connect({ port, host: '127.0.0.1', noDelay: true, allowHalfOpen: true });
      pass(client, upstream, roundTripMs / 2);
      pass(upstream, client, roundTripMs / 2);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return (server.address() as net.AddressInfo).port;
  }),
);
announce(ports);

/** Passes bytes on after the delay. Timers of equal length fire in the order in which they were set, so the bytes keep their order. */
function pass(from: net.Socket, to: net.Socket, delayMs: number): void {
  const later = (act: () => void) => (delayMs > 0 ? setTimeout(act, delayMs) : act());
  from.on('data', (bytes: Buffer) => later(() => to.write(bytes)));
  from.on('end', () => later(() => to.end()));
  from.on('error', () => to.destroy());
  from.on('close', () => later(() => to.destroySoon()));
}
