// A local prox of every client in one pass over the rows: span_steps.py, fused.
//
// A warp takes G clients of N rows at a time. Each lane keeps its columns of all their rows in
// registers; after a transposed reduction lane N·g + i has the numbers of row i of client g, and
// the steps need products with that row of K alone, by shuffles.
//
// Compiled with these macros: N, D (rows and columns of a client), NEWTON, QUADRATIC (which solver),
// OWN_STEPS (one inner step per client), DENSE (answers and displacements are D numbers per client,
// and not N), TERMS (v has a displacement, the sum of so many), WEIGHTS, OFFSETS, STEADY
// (|φ'''| ≤ φ''); and with the functions of the loss.

#define INFINITE __int_as_float(0x7f800000)
constexpr unsigned ALL = 0xffffffffu;
constexpr int G = 32 / N;
constexpr int R = G * N;
constexpr bool WIDE = D % 4 == 0;
constexpr int Q = WIDE ? 4 : (D + 31) / 32;

__device__ __forceinline__ int column(int lane, int q) { return WIDE ? 4 * lane + q : lane + 32 * q; }

// Lane l gets the sum over all lanes of s[l]. Written out, so that s stays in registers.
template <int H>
__device__ __forceinline__ void halve(float (&s)[32], int lane) {
    const bool upper = lane & H;
#pragma unroll
    for (int i = 0; i < H; ++i) {
        const float kept = upper ? s[i + H] : s[i];
        const float sent = upper ? s[i] : s[i + H];
        s[i] = kept + __shfl_xor_sync(ALL, sent, H);
    }
}

__device__ __forceinline__ float transposed(float (&s)[32], int lane) {
    halve<16>(s, lane);
    halve<8>(s, lane);
    halve<4>(s, lane);
    halve<2>(s, lane);
    halve<1>(s, lane);
    return s[0];
}

// The sum over the rows of a lane's client.
__device__ __forceinline__ float over_rows(float v, int row, int base) {
#pragma unroll
    for (int h = 1; h < N; h *= 2) {
        const float other = __shfl_down_sync(ALL, v, h);
        if (row + h < N) v += other;
    }
    return __shfl_sync(ALL, v, base);
}

__device__ __forceinline__ float over_lanes(float v) {
#pragma unroll
    for (int h = 16; h > 0; h /= 2) v += __shfl_xor_sync(ALL, v, h);
    return v;
}

__device__ __forceinline__ double over_lanes(double v) {
#pragma unroll
    for (int h = 16; h > 0; h /= 2) v += __shfl_xor_sync(ALL, v, h);
    return v;
}

__device__ __forceinline__ float product(const float (&K)[N], float v, int base) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < N; ++k) sum = fmaf(K[k], __shfl_sync(ALL, v, base + k), sum);
    return sum;
}

// Have a line of memory brought to the cache.
__device__ __forceinline__ void fetch(const void* line) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

// (I + kappa·W·K)⁻¹ v by Gauss-Jordan elimination: every pivot is at least 1.
__device__ __forceinline__ float solve(const float (&K)[N], float W, float v, int row, int base) {
    float M[N];
    float pivot = 1.0f;
#pragma unroll
    for (int k = 0; k < N; ++k) M[k] = W * K[k] + (k == row ? 1.0f : 0.0f);
#pragma unroll
    for (int k = 0; k < N; ++k) {
        const float diagonal = __shfl_sync(ALL, M[k], base + k);
        const float right = __shfl_sync(ALL, v, base + k);
        const float factor = k == row ? 0.0f : __fdividef(M[k], diagonal);
        if (k == row) pivot = diagonal;
#pragma unroll
        for (int j = k + 1; j < N; ++j) {
            M[j] = fmaf(-factor, __shfl_sync(ALL, M[j], base + k), M[j]);
        }
        v = fmaf(-factor, right, v);
    }
    return v / pivot;
}

extern "C" __global__ void __launch_bounds__(128, 2)
prox(const float* __restrict__ A, const float* __restrict__ b, const float* __restrict__ weights,
     const float* __restrict__ offsets, const float* __restrict__ Kt,
     const float* __restrict__ displaced, const float* __restrict__ added,
     float* __restrict__ carried, const float* __restrict__ own_steps,
     const double* __restrict__ x, const double* __restrict__ e, float* __restrict__ out,
     double* __restrict__ partial, long long m, int steps, float alpha0, float beta0, float s,
     float r, float pull, float inner, float first_share, float second_share, float factor,
     float alpha_end, float beta_end, float proved) {
    const int lane = threadIdx.x & 31;
    const long long warp = (blockIdx.x * (long long)blockDim.x + threadIdx.x) >> 5;
    const long long warps = (gridDim.x * (long long)blockDim.x) >> 5;
    const long long groups = (m + G - 1) / G;
    const int row = lane % N;
    const int base = lane - row;
    float xs[Q], es[Q];
    double total[Q];
#pragma unroll
    for (int q = 0; q < Q; ++q) {
        const int at = column(lane, q);
        xs[q] = at < D ? (float)x[at] : 0.0f;
#if DENSE
        es[q] = at < D ? (float)(e[at] - x[at]) : 0.0f;
#else
        es[q] = at < D ? (float)e[at] : 0.0f;
#endif
        total[q] = 0.0;
    }
    float ee = 0.0f, ex = 0.0f, xx = 0.0f;
#pragma unroll
    for (int q = 0; q < Q; ++q) {
        ee = fmaf(es[q], es[q], ee);
        ex = fmaf(es[q], xs[q], ex);
        xx = fmaf(xs[q], xs[q], xx);
    }
    ee = over_lanes(ee);
    ex = over_lanes(ex);
    xx = over_lanes(xx);
    double square = 0.0, objective = 0.0;
    float largest = 0.0f, margin = INFINITE;

    for (long long g = warp; g < groups; g += warps) {
        const long long first = g * R;
        const long long left = m * N - first;
        const float* rows = A + first * D;
        float a[R][Q];
#pragma unroll
        for (int i = 0; i < R; ++i) {
            if constexpr (WIDE) {
                float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (4 * lane < D && i < left) v = __ldcs((const float4*)(rows + i * D) + lane);
                a[i][0] = v.x;
                a[i][1 % Q] = v.y;
                a[i][2 % Q] = v.z;
                a[i][3 % Q] = v.w;
            } else {
#pragma unroll
                for (int q = 0; q < Q; ++q) {
                    const int at = column(lane, q);
                    a[i][q] = at < D && i < left ? __ldcs(rows + i * D + at) : 0.0f;
                }
            }
        }
        const bool mine = lane < R && lane < left;
        const long long id = first + lane;
        const float target = mine ? b[id] : 0.0f;
#if WEIGHTS
        const float weight = mine ? weights[id] : 0.0f;
#else
        const float weight = mine ? 1.0f : 0.0f;
#endif
#if OFFSETS
        const float offset = mine ? offsets[id] : 0.0f;
#else
        const float offset = 0.0f;
#endif
        float K[N];
#pragma unroll
        for (int k = 0; k < N; ++k) K[k] = __ldcs(Kt + (g * N + k) * 32 + lane);
        float c = 0.0f;
#if TERMS && !DENSE
        if (mine) c = first_share * displaced[id];
#if TERMS == 2
        if (mine) {
            c = fmaf(second_share, added[id], c);
            carried[id] = c;
        }
#endif
        c *= factor;
#endif
#if DENSE
        float v[G][Q];  // v - x: differences of large numbers would be rounded
#pragma unroll
        for (int h = 0; h < G; ++h) {
#pragma unroll
            for (int q = 0; q < Q; ++q) {
                v[h][q] = es[q];
#if TERMS
                const int at = column(lane, q);
                if (at < D && g * G + h < m) v[h][q] += factor * displaced[(g * G + h) * D + at];
#endif
            }
        }
#endif
        {   // the next clients' rows, K and numbers, on their way to the cache meanwhile
            const long long later = g + warps;
            if (later < groups) {
                if (lane < N) fetch(Kt + (later * N + lane) * 32);
                const long long number = later * R + (lane & 1 ? R - 1 : 0);
                if (lane < 2 && number < m * N) fetch(b + number);
#if TERMS && !DENSE
                if (lane >= 2 && lane < 4 && number < m * N) fetch(displaced + number);
#if TERMS == 2
                if (lane >= 4 && lane < 6 && number < m * N) fetch(added + number);
#endif
#endif
            }
            const char* next = (const char*)(rows + warps * R * D);
            const char* end = (const char*)(A + m * (long long)N * D);
#pragma unroll
            for (int i = 0; i < (R * D * 4 + 4095) / 4096; ++i) {
                const char* line = next + (i * 32 + lane) * 128;
                if (line < end && (i * 32 + lane) * 128 < R * D * 4) {
                    fetch(line);
                }
            }
        }
        float sums[32];
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            float sum = 0.0f;
            if (i < R) {
#pragma unroll
                for (int q = 0; q < Q; ++q) sum = fmaf(a[i % R][q], xs[q], sum);
            }
            sums[i] = sum;
        }
        const float ax = transposed(sums, lane);
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            float sum = 0.0f;
            if (i < R) {
#pragma unroll
                for (int q = 0; q < Q; ++q) {
#if DENSE
                    sum = fmaf(a[i % R][q], v[(i % R) / N][q], sum);
#else
                    sum = fmaf(a[i % R][q], es[q], sum);
#endif
                }
            }
            sums[i] = sum;
        }
        const float ae = transposed(sums, lane);
        float av = ae;
#if DENSE
        av += ax;
#elif TERMS
        av += product(K, c, base);
#endif
        objective += (double)(weight * value(ax + offset, target));
        if (weight > 0.0f) margin = fminf(margin, target * ax);

        float alpha = alpha0, beta = beta0, w = 0.0f, kw = 0.0f, slopes;
#if NEWTON
        const float kappa = s / r;
        const float eta0 = av / r + offset;
        float mu = -weight * slope(ax + offset, target);
        float km = kappa * product(K, mu, base);
#if QUADRATIC
        {
            const float missing = -(weight * slope(eta0 + km, target) + mu);
            mu += solve(K, kappa * weight, missing, row, base);
            km = kappa * product(K, mu, base);
        }
#else
        float psi = over_rows(weight * value(eta0 + km, target) + 0.5f * mu * km, row, base);
        const float zero = over_rows(weight * value(eta0, target), row, base);
        if (!(psi <= zero)) {
            mu = 0.0f;
            km = 0.0f;
            psi = zero;
        }
        float size = INFINITE;
        bool known = true;
        bool active = true;
        for (int step = 0; step < steps; ++step) {
            const float eta = eta0 + km;
            const float missing = -(weight * slope(eta, target) + mu);
            const float now = over_rows(missing * missing, row, base);
            const float scale = over_rows(mu * mu, row, base) + 1e-30f;
            active = active && now > 1e-12f * scale && !(now > 0.25f * size && now < 1e-8f * scale);
            size = now;
            if (!__any_sync(ALL, active)) break;
            const float bent = kappa * weight * bend(eta, target);
            float delta = solve(K, bent, missing, row, base);
            if (!active) delta = 0.0f;
            const float kd = kappa * product(K, delta, base);
            const float down = -over_rows(missing * kd, row, base);
            float t = 1.0f;
            float ahead = psi;
            // where the Hessian changes by less than e, Newton's whole step is good
            if (STEADY && __all_sync(ALL, fabsf(kd) <= 1.0f)) {
                mu += delta;
                km += kd;
                known = false;
                continue;
            }
            if (!known) {
                psi = over_rows(weight * value(eta, target) + 0.5f * mu * km, row, base);
                known = true;
            }
            for (int half = 0; half < 30; ++half) {
                const float k_ahead = km + t * kd;
                const float m_ahead = mu + t * delta;
                const float term = weight * value(eta0 + k_ahead, target) + 0.5f * m_ahead * k_ahead;
                ahead = over_rows(term, row, base);
                const bool refused = !(ahead <= psi + 1e-4f * t * down + 1e-6f * fabsf(psi));
                if (!__any_sync(ALL, refused && active)) break;
                if (refused) t *= 0.5f;
            }
            mu = fmaf(t, delta, mu);
            km = fmaf(t, kd, km);
            psi = ahead;
        }
#endif
        slopes = weight * slope(eta0 + km, target);
        alpha = alpha_end;
        beta = 0.0f;
        w = kappa * mu;
        const float lead = 0.0f, rest = 0.0f;
        const float tau = s * (mu + slopes);
#else
#if OWN_STEPS
        const float step_size = mine ? own_steps[(first + lane) / N] : 0.0f;
#else
        const float step_size = inner;
#endif
        const float kept = 1.0f - step_size * r;
        for (int step = 0; step < steps; ++step) {
            const float eta = fmaf(alpha, av, fmaf(beta, ax, kw + offset));
            w = kept * w - step_size * s * (weight * slope(eta, target));
            alpha = kept * alpha + step_size * pull;
            beta = kept * beta;
            kw = product(K, w, base);
        }
        slopes = weight * slope(fmaf(alpha, av, fmaf(beta, ax, kw + offset)), target);
        const float lead = r * alpha - pull;
        const float rest = r * beta;
        const float tau = r * w + s * slopes;
#endif

#if DENSE
#pragma unroll
        for (int h = 0; h < G; ++h) {
            const long long client = g * G + h;
            const float al = __shfl_sync(ALL, alpha, h * N);
            const float be = __shfl_sync(ALL, beta, h * N);
            const float le = __shfl_sync(ALL, lead, h * N);
            const float re = __shfl_sync(ALL, rest, h * N);
            float away[Q], residual[Q];
#pragma unroll
            for (int q = 0; q < Q; ++q) {
                away[q] = al * v[h][q] + (al + be - 1.0f) * xs[q];
                residual[q] = le * v[h][q] + (le + re) * xs[q];
            }
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const float wi = __shfl_sync(ALL, w, h * N + i);
                const float ti = __shfl_sync(ALL, tau, h * N + i);
#pragma unroll
                for (int q = 0; q < Q; ++q) {
                    away[q] = fmaf(a[h * N + i][q], wi, away[q]);
                    residual[q] = fmaf(a[h * N + i][q], ti, residual[q]);
                }
            }
            float missed = 0.0f, moved = 0.0f;
#pragma unroll
            for (int q = 0; q < Q; ++q) {
                const int at = column(lane, q);
                if (at < D && client < m) {
                    out[client * D + at] = away[q];
                    total[q] += (double)away[q];
                    moved = fmaf(away[q], away[q], moved);
                    missed = fmaf(residual[q], residual[q], missed);
                }
            }
            square += (double)moved;
            largest = fmaxf(largest, over_lanes(missed));
        }
#else
        const float sigma = w + alpha * c;
        if (mine) out[id] = sigma;
        {
            const float t = tau + lead * c;
            const float image = lead * ae + rest * ax;
            float own = over_rows(t * (2.0f * image + product(K, t, base)), row, base);
            own += lead * lead * ee + 2.0f * lead * rest * ex + rest * rest * xx;
            if (mine) largest = fmaxf(largest, own);
        }
#pragma unroll
        for (int h = 0; h < G; ++h) {
            float y[Q];
#pragma unroll
            for (int q = 0; q < Q; ++q) y[q] = 0.0f;
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const float si = __shfl_sync(ALL, sigma, h * N + i);
#pragma unroll
                for (int q = 0; q < Q; ++q) y[q] = fmaf(a[h * N + i][q], si, y[q]);
            }
            float moved = 0.0f;
#pragma unroll
            for (int q = 0; q < Q; ++q) {
                const float away = alpha_end * es[q] + beta_end * xs[q] + y[q];
                moved = fmaf(away, away, moved);
                total[q] += (double)y[q];
            }
            if (g * G + h < m) square += (double)moved;
        }
#endif
    }
    double* mine = partial + warp * (D + 4);
#pragma unroll
    for (int q = 0; q < Q; ++q) {
        if (column(lane, q) < D) mine[column(lane, q)] = total[q];
    }
    square = over_lanes(square);
    objective = over_lanes(objective);
#pragma unroll
    for (int h = 16; h > 0; h /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, h));
        margin = fminf(margin, __shfl_xor_sync(ALL, margin, h));
    }
    if (lane == 0) {
        mine[D] = square;
        mine[D + 1] = objective;
        mine[D + 2] = sqrt((double)fmaxf(largest, 0.0f)) * proved;
        mine[D + 3] = margin > 0.0f ? 1.0 : -1.0;
    }
}

// The warps' sums in a fixed order. Block i < D writes e[i] and total[i] of the displacements, the
// last four their squares, F, the largest error and the least margin.
extern "C" __global__ void gather(const double* __restrict__ partial, int warps,
                                  const double* __restrict__ x, const double* __restrict__ e,
                                  double clients, double alpha, double beta, double half_ridge,
                                  double* __restrict__ out) {
    __shared__ double found[256];
    const int i = blockIdx.x;
    const int me = threadIdx.x;
    const bool summed = i < D + 2;
    double mine = summed ? 0.0 : (i == D + 2 ? 0.0 : 1.0);
    for (int warp = me; warp < warps; warp += 256) {
        const double v = partial[(long long)warp * (D + 4) + i];
        mine = summed ? mine + v : (i == D + 2 ? fmax(mine, v) : fmin(mine, v));
    }
    if (i == D + 1) {
        for (int k = me; k < D; k += 256) mine += half_ridge * x[k] * x[k];
    }
    found[me] = mine;
    __syncthreads();
    for (int h = 128; h > 0; h /= 2) {
        if (me < h) {
            const double v = found[me + h];
            found[me] = summed ? found[me] + v
                               : (i == D + 2 ? fmax(found[me], v) : fmin(found[me], v));
        }
        __syncthreads();
    }
    if (me) return;
    if (i < D) {
        const double shared = alpha * e[i] + beta * x[i];
        out[i] = shared;
        out[D + i] = found[0] + clients * shared;
    } else {
        out[D + i] = found[0];
    }
}

// K of each client, (m, N, N), as (groups, N, 32): lane l reads its row of K without gaps.
extern "C" __global__ void lay_out(const float* __restrict__ K, float* __restrict__ out,
                                   long long m) {
    const long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    const int lane = at % 32;
    const long long k = at / 32 % N;
    const long long g = at / 32 / N;
    if (g >= (m + G - 1) / G) return;
    const long long client = g * G + lane / N;
    const bool used = lane < R && client < m;
    out[at] = used ? K[(client * N + k) * N + lane % N] : 0.0f;
}
