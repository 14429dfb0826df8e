import { pullModel } from '#gpu-host/models/pull.ts';
import type { GpuHostAddress } from '#gpu-host/protocol/connections.ts';
import { type LinkSecurity, toMachine } from '#scheduler/links/security.ts';
import type { Machines } from '#scheduler/machines/machines.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import { retrying } from '#scheduler/store/connection.ts';
import type { EncoderKind } from '#wit/generated/host.ts';

/** Time between two reads of the registry without a notice of a change. */
const LOOK_EVERY_MS = 60_000;

/** A runtime's own configuration. */
interface OwnConfig {
  readonly machine: { readonly name: string };
  readonly gpuHosts: readonly GpuHostAddress[];
  /** Models whose sources the supervisor has pulled. */
  readonly models: readonly Named[];
  /** Encoders whose sources the supervisor has pulled. */
  readonly encoders: readonly Named[];
}

/** A model, or an encoder with its kind. */
interface Named {
  readonly name: string;
  readonly source: string;
  readonly kind?: EncoderKind;
}

/** The GPU hosts that a runtime uses: those of its own configuration, and those that other machines have registered. */
export class GpuHostRegistry {
  readonly #machines: Machines;
  readonly #ownConfig: OwnConfig;
  readonly #security: LinkSecurity | undefined;
  #directories: ReadonlyMap<string, string> | undefined;

  /** @param security for links to GPU hosts with network addresses */
  constructor(machines: Machines, ownConfig: OwnConfig, security?: LinkSecurity) {
    this.#machines = machines;
    this.#ownConfig = ownConfig;
    this.#security = security;
  }

  async hosts(): Promise<GpuHostAddress[]> {
    const { gpuHosts, machine } = this.#ownConfig;
    const securityOf = (owner: string) => this.#security && toMachine(this.#security, owner);
    // A host that is silent because its machine gives it no core is not lost.
    const heartbeatOf = (owner: string, name: string) => ({ look: () => this.#machines.look(owner, name) });
    const hosts = gpuHosts.map(
      ({ name, address }): GpuHostAddress => ({
        name,
        address,
        security: securityOf(machine.name),
        heartbeat: heartbeatOf(machine.name, name),
      }),
    );
    const knownNames = new Set(hosts.map(({ name }) => name));
    const otherHosts = (await this.#machines.gpuHosts(machine.name)).filter(({ name }) => !knownNames.has(name));
    if (otherHosts.length === 0) return hosts;
    this.#directories ??= await this.#localModels();
    const directories = this.#directories;
    return [
      ...hosts,
      ...otherHosts.map(({ name, address, alive, machine: owner }) => ({
        name,
        address,
        alive,
        directories,
        security: securityOf(owner),
        heartbeat: heartbeatOf(owner, name),
      })),
    ];
  }

  /** Calls `onHostsChange` with the hosts now, and after every change of the registry. Resolves to a function that ends these calls. */
  async follow(onHostsChange: (hosts: readonly GpuHostAddress[]) => void, log: Logger): Promise<() => void> {
    const reading = retrying(
      async () => onHostsChange(await this.hosts()),
      (error) => log.warn({ error }, 'the list of GPU hosts could not be read'),
    );
    const stop = await this.#machines.onChange(reading.run);
    reading.run();
    // The entry of a dead machine expires without a notice.
    const lookTimer = setInterval(reading.run, LOOK_EVERY_MS).unref();
    return () => {
      clearInterval(lookTimer);
      stop();
      reading.stop();
    };
  }

  /** By name, the directories of this machine's copies of models and encoders. The directories of another machine cannot be read from here. */
  async #localModels(): Promise<ReadonlyMap<string, string>> {
    const { models, encoders } = this.#ownConfig;
    const pulled = [...models, ...encoders].map(
      async ({ name, source, kind }) => [name, (await pullModel(source, kind ? { kind } : {})).directory] as const,
    );
    return new Map(await Promise.all(pulled));
  }
}
