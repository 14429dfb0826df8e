import { StoreError } from '../store/errors.ts';
import { totalUsage } from '../usage/metered.ts';
import {
  FAILURE_CODES,
  type FailureCode,
  type Invocation,
  type InvocationStatus,
  type Question,
  STATUSES,
  type Usage,
  type WebhookState,
} from './types.ts';

function isStatus(value: string | undefined): value is InvocationStatus {
  return STATUSES.some((status) => status === value);
}

function isFailureCode(value: string | undefined): value is FailureCode {
  return (FAILURE_CODES as readonly (string | undefined)[]).includes(value);
}

/** Parses the record of an invocation from the fields of its hash. */
export function parseRecord(fields: Readonly<Record<string, string>>): Invocation {
  const text = (name: string): string => {
    const value = fields[name];
    if (value === undefined) throw new StoreError('store-corrupt', `An invocation's record has no field "${name}".`);
    return value;
  };
  const integer = (name: string): number => {
    const value = Number(text(name));
    if (!Number.isFinite(value))
      throw new StoreError('store-corrupt', `An invocation's field "${name}" is not a number.`);
    return value;
  };
  const status = fields.status;
  if (!isStatus(status)) throw new StoreError('store-corrupt', `An invocation has the unknown status "${status}".`);
  return {
    id: text('id'),
    tenant: text('tenant'),
    function: text('function'),
    version: text('version'),
    submittedAt: integer('submittedAt'),
    deadlineMs: integer('deadlineMs'),
    restartable: fields.restartable === '1',
    schedule: fields.schedule ?? null,
    parent: fields.parent ?? null,
    root: fields.root ?? null,
    placement: fields.placement ?? null,
    status,
    arrival: integer('arrival'),
    epoch: integer('epoch'),
    attempts: integer('attempts'),
    seq: integer('seq'),
    runtimeId: fields.runtimeId ?? null,
    startedAt: fields.startedAt === undefined ? null : integer('startedAt'),
    endedAt: fields.endedAt === undefined ? null : integer('endedAt'),
    cancelReason: fields.cancelReason ?? null,
    notBefore: fields.notBefore === undefined ? null : integer('notBefore'),
    successor: fields.successor ?? null,
    question: fields.question === undefined ? null : parseJson<Question>(fields.question, 'question'),
    failure: isFailureCode(fields.code) ? { code: fields.code, message: fields.message ?? '' } : null,
    resultBytes: Number(fields.resultBytes ?? 0),
    usage: totalUsage(
      fields.usage ? parseJson<Usage>(fields.usage, 'usage') : null,
      fields.usageBefore,
      fields.usageNow,
    ),
    webhook: parseWebhook(fields),
  };
}

function parseWebhook(fields: Readonly<Record<string, string>>): WebhookState | null {
  const { webhookUrl: url, webhookStatus: status = 'waiting' } = fields;
  if (url === undefined) return null;
  if (status !== 'waiting' && status !== 'pending' && status !== 'delivered' && status !== 'failed')
    throw new StoreError('store-corrupt', `A webhook has the unknown status "${status}".`);
  const numberOrNull = (text: string | undefined) => (text ? Number(text) : null);
  return {
    url,
    status,
    attempts: Number(fields.webhookAttempts ?? 0),
    lastStatus: numberOrNull(fields.webhookLastStatus),
    lastError: fields.webhookLastError || null,
    nextAt: status === 'pending' ? numberOrNull(fields.webhookNextAt) : null,
  };
}

function parseJson<T>(text: string, field: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new StoreError('store-corrupt', `An invocation's field "${field}" is not JSON.`, { cause });
  }
}
