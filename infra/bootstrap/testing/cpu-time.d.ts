export function endedCpuSeconds(): number;
