import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  CertificateTaken,
  type ClaimRefusal,
  isClaimRefusal,
  MACHINE_LEASE_MS,
  MachineLease,
  MachineRemoved,
  PlatformRestoring,
  RolesRefused,
} from '#scheduler/machines/lease.ts';
import { listMachines, removalNotice, removedCertificates } from '#scheduler/machines/machines.ts';
import { Channels } from '#scheduler/store/channels.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { retrying } from '#scheduler/store/retrying.ts';
import { Store } from '#scheduler/store/store.ts';
import type { Config } from './config.ts';
import { ConfigError } from './config-error.ts';
import { ensureCertificate } from './links/certificate.ts';
import { PeerList, type Peers, writePeers } from './links/peers.ts';
import { connectRedis } from './redis.ts';
import { shownRedis } from './redis-settings.ts';

/** Longest wait for a shared Redis at the start. */
const REDIS_DEADLINE_MS = 10_000;
/**
 * When Redis has refused this machine's user for longer, an operator has removed the machine while it was away. A shorter refusal may come from
 * a Redis that restarted without its users; a gateway that may create users restores them.
 */
const REFUSED_MS = 15 * 60_000;
/** Interval at which the supervisor reads the other machines' certificates. */
const READ_PEERS_MS = 1000;

/**
 * Claims this machine's name in Redis, registers its GPU hosts and its certificate, and keeps the file of the certificates that its processes
 * accept. Returns a function that removes the machine; null when the signal aborts.
 * @param onTaken called when another supervisor has taken the name during a pause of this one, or an operator has removed the machine
 * @throws ConfigError when Redis does not answer, another running supervisor has the name, or an operator has removed the machine
 */
export async function claimMachine(
  config: Config,
  { onTaken, signal }: { readonly onTaken: (error: ConfigError) => void; readonly signal: AbortSignal },
): Promise<(() => Promise<void>) | null> {
  const { name, roles } = config.machine;
  // Made before the connection: when making the certificate fails, an open connection would keep this process alive.
  const machine = {
    ...{ name, roles, host: os.hostname(), pid: process.pid, version: versionOf(config) },
    certificate: (await ensureCertificate(config.home, name, Date.now())).fingerprint,
    gpuHosts: config.gpuHosts.map(({ name: host, address }) => ({ name: host, address })),
  };
  const redis = connectRedis(config);
  let why = '';
  let refusedMs = 0;
  let isOver = false;
  const removed = () => {
    if (isOver) return;
    isOver = true;
    onTaken(refusal(new MachineRemoved(name), config));
  };
  redis.on('error', (error: Error) => {
    why = error.message;
    if (!/WRONGPASS|NOAUTH/.test(why)) return;
    refusedMs ||= performance.now();
    if (performance.now() - refusedMs > REFUSED_MS) removed();
  });
  redis.on('ready', () => {
    refusedMs = 0;
  });
  const store = new Store(redis, { deadlineMs: REDIS_DEADLINE_MS });
  try {
    await store.ping();
  } catch (cause) {
    redis.disconnect();
    const said = why || (cause instanceof Error ? cause.message : String(cause));
    throw new ConfigError(`Redis at ${shownRedis(config.redis)} cannot be used: ${said}`, { cause });
  }
  let claimed: MachineLease | undefined;
  try {
    const lease = await MachineLease.claim(store, machine, {
      // The claim of the home keeps other supervisors from a private Redis.
      force: config.redis.kind === 'private',
      onTaken: (taken) => {
        if (!isOver) onTaken(refusal(taken, config));
        isOver = true;
      },
      onError: (error) => console.error('The lease of this machine could not be renewed:', error),
      signal,
    });
    claimed = lease;
    const stopFollowing = await followPeers(config, store, removed);
    const release = async () => {
      isOver = true;
      stopFollowing();
      await lease.release().catch(() => undefined);
      redis.disconnect();
    };
    if (!signal.aborted) return release;
    await release();
    return null;
  } catch (error) {
    isOver = true;
    // Otherwise the renewals would keep the name taken and this process alive.
    await claimed?.release().catch(() => undefined);
    redis.disconnect();
    if (signal.aborted) return null;
    throw isClaimRefusal(error) ? refusal(error, config) : error;
  }
}

/**
 * Keeps the file of accepted certificates up to date, at once when an operator removes a machine. Calls `removed` when an operator removes this
 * machine. Resolves after the first write, to a function that stops the updates. While Redis is away, the file stays as it is.
 */
async function followPeers(config: Config, store: Store, removed: () => void): Promise<() => void> {
  const peers = new PeerList(MACHINE_LEASE_MS, READ_PEERS_MS);
  let written: string | undefined;
  const follow = async () => {
    const [machines, refused] = await Promise.all([listMachines(store), removedCertificates(store)]);
    const registered = machines.flatMap(({ name, certificate }) =>
      certificate === undefined ? [] : [[certificate, name] as const],
    );
    const accepted: Peers = peers.update(registered, refused, performance.now());
    const text = JSON.stringify(accepted);
    if (text === written) return;
    writePeers(config, accepted);
    written = text;
  };
  await follow();
  let saidWhy = '';
  const failed = (error: unknown) => {
    if (StoreError.from(error).code === 'store-unavailable' || String(error) === saidWhy) return;
    saidWhy = String(error);
    console.error('The list of accepted certificates could not be updated; the last one still applies:', error);
  };
  const following = retrying(follow, failed);
  const again = () => void following.run();
  const subscriber = connectRedis(config);
  subscriber.on('error', () => undefined);
  // Wait for the connection: a subscription that begins later could miss the notice of a removal.
  await once(subscriber, 'ready', { signal: AbortSignal.timeout(REDIS_DEADLINE_MS) }).catch(() => undefined);
  const channels = new Channels(subscriber);
  const own = removalNotice(config.machine.name);
  const message = (payload: Buffer) => {
    // Redis may delete this machine's user before a renewal of the lease reports the removal.
    if (payload.toString() === own) removed();
    again();
  };
  await channels.listen(store.keys.machinesChannel, { message, resumed: again });
  const timer = setInterval(again, READ_PEERS_MS);
  return () => {
    clearInterval(timer);
    following.stop();
    channels.close();
    subscriber.disconnect();
  };
}

function refusal(taken: ClaimRefusal, { home }: Config): ConfigError {
  const file = path.join(home, 'machine.pem');
  if (taken instanceof MachineRemoved)
    return new ConfigError(
      `${taken.message} Delete ${file} if it may join again: the next start makes a new certificate.`,
      { cause: taken },
    );
  if (taken instanceof CertificateTaken)
    return new ConfigError(
      `${taken.message} Delete ${file} if this home is a copy of that machine's: the next start makes a new certificate.`,
      { cause: taken },
    );
  if (taken instanceof PlatformRestoring)
    return new ConfigError(`${taken.message} Run \`pie restore FILE --force\` again if it broke off.`, {
      cause: taken,
    });
  if (taken instanceof RolesRefused)
    return new ConfigError(
      `${taken.message} Change roles below [machine] in pie.toml, or remove the machine and join again with a token for these roles.`,
      { cause: taken },
    );
  return new ConfigError(
    `${taken.message} Machines that share a Redis need different names: set PIE_MACHINE, or name below [machine] in pie.toml.`,
    { cause: taken },
  );
}

function versionOf({ root }: Config): string {
  const { version }: { version: string } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  return version;
}
