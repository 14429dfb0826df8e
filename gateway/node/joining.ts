import { z } from 'zod';
import { commonVersion, type Versions, versionRefusal } from '#scheduler/links/versions.ts';
import { type JoinPermission, newestSpoken, openJoin, sealJoin } from '#scheduler/machines/join-tokens.ts';
import { JOIN_VERSIONS, MACHINE_NAME, ROLES, type Role } from '#scheduler/machines/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { type MasterKeys, masterKeyText } from '#scheduler/secrets/master-keys.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import { translating } from './store-errors.ts';

/** Settings and keys that a gateway hands to machines that join. */
export interface JoinSource {
  /** The platform's Redis as this machine reaches it; null when other machines cannot reach it. */
  readonly redis: {
    readonly url: string;
    /** Certificates of the authorities that may have signed the certificate of the Redis server, PEM. */
    readonly ca?: string;
  } | null;
  readonly masterKeys: MasterKeys;
  /** The settings that all machines have in common. */
  readonly settings: () => Readonly<Record<string, unknown>>;
  /** Versions of the join exchange that the gateway accepts; by default those of this release. */
  readonly versions?: Versions;
}

const joinSchema = z.strictObject({
  machine: z.string().regex(MACHINE_NAME),
  roles: z.array(z.enum(ROLES)).min(1),
  certificate: z.string().regex(/^([0-9A-F]{2}:){31}[0-9A-F]{2}$/),
});

/** Takes machines into the platform. */
export class Joining {
  readonly #scheduler: Scheduler;
  readonly #source: JoinSource | undefined;

  constructor(scheduler: Scheduler, source: JoinSource | undefined) {
    this.#scheduler = scheduler;
    this.#source = source;
  }

  get versions(): Versions {
    return this.#source?.versions ?? JOIN_VERSIONS;
  }

  /** Makes a token with which one machine may join. Throws `conflict` when no machine can join through this gateway. */
  async createToken(ttlMs: number, permission: JoinPermission): Promise<string> {
    const { masterKeys } = await this.#usableSource();
    return this.#scheduler.joinTokens.create(masterKeys, ttlMs, permission);
  }

  /**
   * Returns the sealed answer to a machine's sealed request. Throws `join-refused`, or `conflict` for a name that is taken, a version that the
   * gateway does not speak, or a gateway through which no machine can join.
   */
  join(token: string, sealed: string, version: number): Promise<string> {
    return translating(async () => {
      this.#assertVersion(version);
      const { joinTokens, redisUsers, audit } = this.#scheduler;
      const tokenPermission = this.#source ? await joinTokens.find(this.#source.masterKeys, token) : null;
      const request =
        tokenPermission &&
        joinSchema.safeParse(openJoin(tokenPermission.key, { direction: 'request', version }, sealed));
      if (!tokenPermission || !request?.success) throw joinRefused();
      // Both sides speak a newer version: something on the path may have lowered the versions that the gateway stated.
      if (Math.min(newestSpoken(sealed) ?? version, this.versions.newest) > version) throw versionLowered(version);
      const { redis, masterKeys, settings } = await this.#usableSource();
      const { machine, roles, certificate } = request.data;
      if (!roles.every((role) => tokenPermission.roles.includes(role))) throw notAllowed(tokenPermission.roles, roles);
      // A GPU host opens no secret.
      const needsMasterKey = roles.some((role) => role !== 'gpu-host');
      // These calls may fail, so they come before the token is used up.
      const answer = { masterKey: needsMasterKey ? masterKeyText(await masterKeys.all()) : null, settings: settings() };
      const user = await redisUsers.grant(token, machine, certificate, roles);
      if (user === 'no-token') throw joinRefused();
      if (user === 'taken') throw nameTaken(machine);
      await audit.record(tokenPermission.by, tokenPermission.tenant, 'machine.join', machine, { roles });
      const url = new URL(redis.url);
      url.username = user.user;
      url.password = user.password;
      return sealJoin(
        tokenPermission.key,
        { direction: 'answer', version },
        {
          redis: { url: url.href, ...(redis.ca !== undefined && { ca: redis.ca }) },
          ...answer,
        },
      );
    });
  }

  #assertVersion(version: number): void {
    const machine = { name: 'joining machine', versions: { oldest: version, newest: version } };
    if (commonVersion(this.versions, machine.versions) !== null) return;
    const gateway = { name: 'gateway', versions: this.versions };
    throw new GatewayError('conflict', versionRefusal('join exchange', gateway, machine), {
      hint: 'Join again after this upgrade.',
    });
  }

  async #usableSource(): Promise<JoinSource & { readonly redis: NonNullable<JoinSource['redis']> }> {
    const redis = this.#source?.redis;
    if (!this.#source || !redis)
      throw new GatewayError('conflict', 'The Redis of this platform is private to its machine.', {
        hint: 'Start it with a Redis that other machines reach: REDIS_URL, or url below [redis] in pie.toml.',
      });
    if (!(await this.#scheduler.redisUsers.mayChange()))
      throw new GatewayError('conflict', 'The Redis user of this gateway may not create users for other machines.', {
        hint: 'Use a gateway whose REDIS_URL names the operator’s own user, such as that of the first machine.',
      });
    return { ...this.#source, redis };
  }
}

const joinRefused = () => new GatewayError('join-refused', 'The token is unknown, used or expired.');

const notAllowed = (allowedRoles: readonly Role[], wantedRoles: readonly Role[]) =>
  new GatewayError(
    'join-refused',
    `The token allows the roles ${allowedRoles.join(', ')}; asked for: ${wantedRoles.join(', ')}.`,
    {
      hint: `Join with \`--role ${allowedRoles.join(',')}\`, or make a token for more (\`pie machines token --role\`).`,
    },
  );

const versionLowered = (version: number) =>
  new GatewayError('join-refused', `Both sides speak a newer version of the join exchange than ${version}.`, {
    hint: 'Something between the machine and the gateway has changed the versions that the gateway stated: use another way, such as HTTPS. Or gateways of two releases answer at this address: try again after the upgrade.',
  });

const nameTaken = (machine: string) =>
  new GatewayError('conflict', `A machine with the name "${machine}" is already registered or has already joined.`, {
    hint: `Choose another name (\`pie join --name\`), or remove that machine first (\`pie machines remove ${machine}\`).`,
  });
