import net from 'node:net';
import type { Config } from './config.ts';
import { ConfigError } from './config-error.ts';

/** Listens for a moment as the gateway will. Throws {@link ConfigError} when that fails, for example because the port is taken. */
export async function assertPortFree({ host, port }: Pick<Config, 'host' | 'port'>): Promise<void> {
  const server = net.createServer();
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(new ConfigError(`Port ${port} on ${host} cannot be used (${error.code}). ${remedyOf(error)}`)),
    );
    server.listen(port, host, resolve);
  });
  await new Promise((resolve) => server.close(resolve));
}

function remedyOf({ code }: NodeJS.ErrnoException): string {
  if (code === 'EADDRNOTAVAIL') return 'Set PIE_HOST to an address of this machine.';
  if (code === 'EACCES') return 'Set PIE_PORT to a free one from 1024 on: smaller ones are reserved for the superuser.';
  return 'Set PIE_PORT to a free one.';
}
