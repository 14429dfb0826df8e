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
import type { ModelProof } from '#scheduler/machines/types.ts';
import type { MachineLooks } from '#scheduler/policies/silence.ts';
import { Channels } from '#scheduler/store/channels.ts';
import { retrying } from '#scheduler/store/connection.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { Store } from '#scheduler/store/store.ts';
import { type Config, processName } from './config.ts';
import { ConfigError } from './config-error.ts';
import { ensureCertificate, PeerList, type Peers, writePeers } from './links/security.ts';
import type { Logger } from './log.ts';
import { connectRedis } from './redis.ts';
import { shownRedis } from './redis-settings.ts';

/** Longest wait for a shared Redis at the start. */
const REDIS_DEADLINE_MS = 10_000;
/**
 * When Redis refuses this machine's user for longer than this, an operator must have removed the machine while it was away. A shorter refusal may
 * come from a Redis that restarted without its users, until a gateway that may create users restores them.
 */
const REFUSED_MS = 15 * 60_000;
/** Interval at which the supervisor reads the other machines' certificates. */
const READ_PEERS_MS = 1000;

interface ClaimOptions {
  /** The supervisor's last looks at its processes, by their names on this machine; the lease publishes them. None by default. */
  readonly looks?: () => MachineLooks;
  /** Called when another supervisor has taken the name during a pause of this one, or an operator has removed the machine. */
  readonly onTaken: (error: ConfigError) => void;
  readonly log: Logger;
  readonly signal: AbortSignal;
}

/** This machine in Redis, while its supervisor runs. */
export interface ClaimedMachine {
  /** Keeps the outcome of a model's proof in the machine's description, in place of the model's earlier one. */
  noteProof(model: string, proof: ModelProof): Promise<void>;
  /** Removes the machine. */
  release(): Promise<void>;
  /** Leaves the machine in Redis, which has ended: its lease runs out, or the next start replaces it. */
  abandon(): void;
}

/**
 * Claims this machine's name in Redis, registers its GPU hosts and its certificate, and keeps the file of the certificates that its processes
 * accept. Returns null when the signal aborts.
 * @throws ConfigError when Redis does not answer, another running supervisor has the name, or an operator has removed the machine
 */
export async function claimMachine(
  config: Config,
  { looks, onTaken, log, signal }: ClaimOptions,
): Promise<ClaimedMachine | null> {
  const { name, roles } = config.machine;
  // The certificate is made before the connection: if making it fails, an open connection would keep this process alive.
  const machine = {
    name,
    roles,
    host: os.hostname(),
    pid: process.pid,
    version: versionOf(config),
    certificate: (await ensureCertificate(config.home, name, Date.now())).fingerprint,
    gpuHosts: config.gpuHosts.map(({ name: host, address }) => ({ name: host, address })),
  };
  const redis = connectRedis(config);
  let connectionError = '';
  let refusedMs = 0;
  let isOver = false;
  const onRemoved = () => {
    if (isOver) return;
    isOver = true;
    onTaken(refusal(new MachineRemoved(name), config));
  };
  redis.on('error', (error: Error) => {
    connectionError = error.message;
    if (!/WRONGPASS|NOAUTH/.test(connectionError)) return;
    refusedMs ||= performance.now();
    if (performance.now() - refusedMs > REFUSED_MS) onRemoved();
  });
  redis.on('ready', () => {
    refusedMs = 0;
  });
  const store = new Store(redis, { deadlineMs: REDIS_DEADLINE_MS });
  try {
    await store.ping();
  } catch (cause) {
    redis.disconnect();
    const reason = (connectionError || (cause instanceof Error ? cause.message : String(cause))).replace(/\.$/, '');
    const remedy =
      config.redis.kind === 'external'
        ? 'Check that it runs, and REDIS_URL or url below [redis] in pie.toml.'
        : `Its log is in ${config.logsDirectory}.`;
    throw new ConfigError(`Redis at ${shownRedis(config.redis)} cannot be used: ${reason}. ${remedy}`, { cause });
  }
  let claimedLease: MachineLease | undefined;
  try {
    const lease = await MachineLease.claim(store, machine, {
      // The claim of the home keeps other supervisors from a private Redis.
      force: config.redis.kind === 'private',
      onTaken: (refusedClaim) => {
        if (!isOver) onTaken(refusal(refusedClaim, config));
        isOver = true;
      },
      ...(looks && { looks: () => named(looks(), config) }),
      log,
      signal,
    });
    claimedLease = lease;
    const stopFollowing = await followPeers(config, store, log, onRemoved);
    const abandon = () => {
      isOver = true;
      stopFollowing();
      lease.abandon();
      redis.disconnect();
    };
    const release = async () => {
      isOver = true;
      stopFollowing();
      await lease.release().catch(() => undefined);
      redis.disconnect();
    };
    let proofs: Readonly<Record<string, ModelProof>> = {};
    const noteProof = (model: string, proof: ModelProof) => {
      proofs = { ...proofs, [model]: proof };
      return lease.describe({ proofs });
    };
    if (!signal.aborted) return { noteProof, release, abandon };
    await release();
    return null;
  } catch (error) {
    isOver = true;
    // Without a release, the renewals of the lease would keep the name taken and this process alive.
    await claimedLease?.release().catch(() => undefined);
    redis.disconnect();
    if (signal.aborted) return null;
    throw isClaimRefusal(error) ? refusal(error, config) : error;
  }
}

/** The looks with the names by which other machines know the processes. */
function named({ running, ended }: MachineLooks, config: Config): MachineLooks {
  const withName = <P extends { readonly name: string }>(process: P): P => ({
    ...process,
    name: processName(config, process.name),
  });
  return { running: running.map(withName), ended: ended.map(withName) };
}

/**
 * Keeps the file of accepted certificates up to date, at once when an operator removes a machine. Calls `onRemoved` when an operator removes this
 * machine. Resolves after the first write, to a function that stops the updates. While Redis is away, the file stays as it is.
 */
async function followPeers(config: Config, store: Store, log: Logger, onRemoved: () => void): Promise<() => void> {
  const peers = new PeerList(MACHINE_LEASE_MS, READ_PEERS_MS);
  let writtenText: string | undefined;
  const follow = async () => {
    const [machines, removedFingerprints] = await Promise.all([listMachines(store), removedCertificates(store)]);
    const registered = machines.flatMap(({ name, certificate }) =>
      certificate === undefined ? [] : [[certificate, name] as const],
    );
    const acceptedPeers: Peers = peers.update(registered, removedFingerprints, performance.now());
    const text = JSON.stringify(acceptedPeers);
    if (text === writtenText) return;
    writePeers(config, acceptedPeers);
    writtenText = text;
  };
  await follow();
  let loggedFailure = '';
  const onFailure = (error: unknown) => {
    if (StoreError.from(error).code === 'store-unavailable' || String(error) === loggedFailure) return;
    loggedFailure = String(error);
    log.error({ error }, 'the list of accepted certificates could not be updated; the last one still applies');
  };
  const following = retrying(follow, onFailure);
  const refresh = () => void following.run();
  const subscriber = connectRedis(config);
  subscriber.on('error', () => undefined);
  // Wait for the connection: a subscription that begins later could miss the notice of a removal.
  await once(subscriber, 'ready', { signal: AbortSignal.timeout(REDIS_DEADLINE_MS) }).catch(() => undefined);
  const channels = new Channels(subscriber);
  const ownRemoval = removalNotice(config.machine.name);
  const message = (payload: Buffer) => {
    // Redis may delete this machine's user before a renewal of the lease reports the removal.
    if (payload.toString() === ownRemoval) onRemoved();
    refresh();
  };
  await channels.listen(store.keys.machinesChannel, { message, resumed: refresh });
  const timer = setInterval(refresh, READ_PEERS_MS);
  return () => {
    clearInterval(timer);
    following.stop();
    channels.close();
    subscriber.disconnect();
  };
}

function refusal(refusedClaim: ClaimRefusal, { home }: Config): ConfigError {
  const file = path.join(home, 'machine.pem');
  if (refusedClaim instanceof MachineRemoved)
    return new ConfigError(
      `${refusedClaim.message} Delete ${file} if it may join again: the next start makes a new certificate.`,
      { cause: refusedClaim },
    );
  if (refusedClaim instanceof CertificateTaken)
    return new ConfigError(
      `${refusedClaim.message} Delete ${file} if this home is a copy of that machine's: the next start makes a new certificate.`,
      { cause: refusedClaim },
    );
  if (refusedClaim instanceof PlatformRestoring)
    return new ConfigError(`${refusedClaim.message} Run \`pie restore FILE --force\` again if it broke off.`, {
      cause: refusedClaim,
    });
  if (refusedClaim instanceof RolesRefused)
    return new ConfigError(
      `${refusedClaim.message} Change roles below [machine] in pie.toml, or remove the machine and join again with a token for these roles.`,
      { cause: refusedClaim },
    );
  return new ConfigError(
    `${refusedClaim.message} Machines that share a Redis need different names: set PIE_MACHINE, or name below [machine] in pie.toml.`,
    { cause: refusedClaim },
  );
}

function versionOf({ root }: Config): string {
  const { version }: { version: string } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  return version;
}
