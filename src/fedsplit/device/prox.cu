// A local solve of every client in one pass over the rows, in float32.
//
// A warp takes G clients of N rows at a time. Each lane holds its columns of all their rows in
// registers; after a transposed reduction lane N·g + i has the numbers of row i of client g. A
// solution is u = αv + βx + Aᵀw with w of N numbers, so that the steps need products with row i of
// K = AAᵀ alone, by shuffles. Meanwhile the rows of the next clients, their points and one half of
// their K are copied to shared memory.
//
// Compiled with these macros: N, D (rows and columns of a client), SOLVER (VALUES, GRADIENT,
// NEWTON or QUADRATIC), POINTS (each client has a point p of its own), REFLECT (the answer is
// p + 2(u - x), else u), OWN_STEPS (one inner step per client), WEIGHTS, OFFSETS, WARPS
// (how many a multiprocessor has), STEADY (|φ'''| ≤ φ''); and with the functions of the loss.

#define VALUES 0
#define GRADIENT 1
#define NEWTON 2
#define QUADRATIC 3
#define INFINITE __int_as_float(0x7f800000)
constexpr unsigned ALL = 0xffffffffu;
constexpr int G = 32 / N;
constexpr int R = G * N;
constexpr bool WIDE = D % 4 == 0;
constexpr int Q = WIDE ? 4 : (D + 31) / 32;
constexpr int HALF = N / 2 + 1;  // diagonals of a symmetric matrix that differ
// numbers in shared memory, in units of 32 bytes: across them the copy engine is slow
constexpr int ROWS = (R * D + 7) / 8 * 8;
constexpr int OWN = POINTS ? (G * D + 7) / 8 * 8 : 0;
// whether lane i has K_{i,i}, K_{i,i+1}, …, which are enough for products, or K_{i,0}, K_{i,1}, …
constexpr bool TURNED = SOLVER == GRADIENT;

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

__device__ __forceinline__ float product(const float (&K)[N], float v, int row, int base) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < N; ++k) {
        const int column = TURNED ? (row + k) % N : k;
        sum = fmaf(K[k], __shfl_sync(ALL, v, base + column), sum);
    }
    return sum;
}

// Copies to shared memory that go on while a warp computes: by the copy engine that GPUs have from
// compute capability 9.0 on, where rows are aligned to 16 bytes; else by the lanes.
struct Landing {
#if __CUDA_ARCH__ >= 900
    static constexpr bool ENGINE = WIDE;
#else
    static constexpr bool ENGINE = false;
#endif
    int lane;
    unsigned barrier, phase = 0, expected = 0;

    __device__ Landing(int lane, void* arrivals) : lane(lane) {
        if constexpr (ENGINE) {
            barrier = __cvta_generic_to_shared(arrivals);
            if (lane == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier));
            asm volatile("fence.proxy.async;" ::: "memory");
            __syncwarp();
        }
    }

    // Begin to copy the numbers that are there, at most COUNT.
    template <int COUNT>
    __device__ __forceinline__ void copy(float* to, const float* from, int there) {
        const unsigned place = __cvta_generic_to_shared(to);
        if constexpr (ENGINE) {
            if (lane == 0) {
                asm volatile("mbarrier.expect_tx.relaxed.cta.shared.b64 [%0], %1;" ::"r"(barrier),
                             "r"(4 * there)
                             : "memory");
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                    "%2, [%3];" ::"r"(place),
                    "l"(from), "r"(4 * there), "r"(barrier)
                    : "memory");
            }
            return;
        }
        constexpr int WIDTH = WIDE ? 4 : 1;
#pragma unroll
        for (int i = 0; i < COUNT; i += 32 * WIDTH) {
            const int at = i + WIDTH * lane;
            if (at >= there) continue;
#if __CUDA_ARCH__ < 800
            for (int k = 0; k < WIDTH; ++k) to[at + k] = from[at + k];
#else
            if constexpr (WIDTH == 4) {
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place + 4 * at),
                             "l"(from + at));
            } else {
                asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place + 4 * at),
                             "l"(from + at));
            }
#endif
        }
    }

    // Wait until all copies have arrived.
    __device__ __forceinline__ void wait() {
        if constexpr (ENGINE) {
            if (lane == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier));
            unsigned done = 0;
            while (!done) {
                asm volatile(
                    "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; "
                    "selp.u32 %0, 1, 0, p; }"
                    : "=r"(done)
                    : "r"(barrier), "r"(phase)
                    : "memory");
            }
            phase ^= 1;
            return;
        }
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.wait_all;" ::: "memory");
#endif
        __syncwarp();
    }
};

// A lane's columns of a row of D numbers in shared memory.
__device__ __forceinline__ void load(float (&to)[Q], const float* row, int lane, bool there) {
    if constexpr (WIDE) {
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (there && 4 * lane < D) v = ((const float4*)row)[lane];
        to[0] = v.x;
        to[1 % Q] = v.y;
        to[2 % Q] = v.z;
        to[3 % Q] = v.w;
    } else {
#pragma unroll
        for (int q = 0; q < Q; ++q) {
            const int at = column(lane, q);
            to[q] = there && at < D ? row[at] : 0.0f;
        }
    }
}

// A lane's columns of a row of D numbers, to memory.
__device__ __forceinline__ void store(const float (&from)[Q], float* to, int lane) {
    if constexpr (WIDE) {
        const float4 v = make_float4(from[0], from[1 % Q], from[2 % Q], from[3 % Q]);
        if (4 * lane < D) __stcs((float4*)to + lane, v);
    } else {
#pragma unroll
        for (int q = 0; q < Q; ++q) {
            const int at = column(lane, q);
            if (at < D) __stcs(to + at, from[q]);
        }
    }
}

// Row i of K from its diagonals: K[k] has K_{i,i+k} for k < HALF, indices modulo N.
__device__ __forceinline__ void unfold(float (&K)[N], int row, int base) {
#pragma unroll
    for (int k = HALF; k < N; ++k) {  // by symmetry, from the row that has it
        const int from = base + (row + k) % N;
        K[k] = __shfl_sync(ALL, K[N - k], base < R ? from : base + row);  // other lanes have zeros
    }
    if constexpr (TURNED) return;
#pragma unroll
    for (int shift = 1; shift < N; shift *= 2) {  // by i places in all
        float turned[N];
#pragma unroll
        for (int k = 0; k < N; ++k) turned[k] = row & shift ? K[(k + N - shift) % N] : K[k];
#pragma unroll
        for (int k = 0; k < N; ++k) K[k] = turned[k];
    }
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

// u near argmin_u s·Σφ(Au) + ½r‖u‖² - pull·⟨v, u⟩ with v - x = side·(p - x), from αv + βx.
extern "C" __global__ void __launch_bounds__(32, WARPS)
prox(const float* __restrict__ A, const float* __restrict__ b, const float* __restrict__ weights,
     const float* __restrict__ offsets, const float* __restrict__ Kt,
     const float* __restrict__ points, const float* __restrict__ own_steps,
     const double* __restrict__ x, float* __restrict__ out, double* __restrict__ partial,
     long long m, int steps, float side, float alpha0, float beta0, float s, float r, float pull,
     float inner) {
    const int lane = threadIdx.x;  // a block is one warp, with shared memory of its own
    const long long warp = blockIdx.x;
    const long long warps = gridDim.x;
    const long long groups = (m + G - 1) / G;
    const int row = lane % N;
    const int base = lane - row;
    float xs[Q];
    double total[Q];
#pragma unroll
    for (int q = 0; q < Q; ++q) {
        const int at = column(lane, q);
        xs[q] = at < D ? (float)x[at] : 0.0f;
        total[q] = 0.0;
    }
    double square = 0.0, objective = 0.0;
    float largest = 0.0f, margin = INFINITE;

    // where rows, inner products and points land while those before them are computed with
    extern __shared__ __align__(128) float shared[];
    float* inner_products = shared;
    float* rows = inner_products + HALF * 32;
    float* own = rows + ROWS;
    Landing landing(lane, own + OWN);
    auto begin = [&](long long g) {
        const int clients = m - g * G < G ? (int)(m - g * G) : G;
        landing.copy<R * D>(rows, A + g * R * D, clients * N * D);
#if SOLVER != VALUES
        landing.copy<HALF * 32>(inner_products, Kt + g * HALF * 32, HALF * 32);
#endif
#if POINTS
        landing.copy<G * D>(own, points + g * G * D, clients * D);
#endif
    };
    // the numbers of a lane's row: target, weight and offset
    auto read = [&](long long g) {
        const long long id = g * R + lane;
        const bool mine = lane < R && id < m * N;
        float3 numbers = make_float3(mine ? b[id] : 0.0f, mine ? 1.0f : 0.0f, 0.0f);
#if WEIGHTS
        if (mine) numbers.y = weights[id];
#endif
#if OFFSETS
        if (mine) numbers.z = offsets[id];
#endif
        return numbers;
    };
    float3 next = make_float3(0.0f, 0.0f, 0.0f);
    if (warp < groups) {
        begin(warp);
        next = read(warp);
    }

    for (long long g = warp; g < groups; g += warps) {
        const float target = next.x, weight = next.y, offset = next.z;
        const int clients = m - g * G < G ? (int)(m - g * G) : G;
        landing.wait();
        float a[R][Q];
#pragma unroll
        for (int i = 0; i < R; ++i) load(a[i], rows + i * D, lane, i < clients * N);
#if SOLVER != VALUES
        float K[N];
#pragma unroll
        for (int k = 0; k < HALF; ++k) K[k] = inner_products[k * 32 + lane];
        float v[G][Q];  // v - x: differences of large numbers would be rounded
#pragma unroll
        for (int h = 0; h < G; ++h) {
#if POINTS
            load(v[h], own + h * D, lane, h < clients);
#pragma unroll
            for (int q = 0; q < Q; ++q) v[h][q] = h < clients ? side * (v[h][q] - xs[q]) : 0.0f;
#else
#pragma unroll
            for (int q = 0; q < Q; ++q) v[h][q] = 0.0f;
#endif
        }
#endif
        __syncwarp();  // nobody reads them there any more
        if (g + warps < groups) {
            begin(g + warps);
            next = read(g + warps);
        }
#if SOLVER != VALUES
        unfold(K, row, base);
#endif
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
        objective += (double)(weight * value(ax + offset, target));
        if (weight > 0.0f) margin = fminf(margin, target * ax);
#if SOLVER != VALUES
        float av = ax;
#if POINTS
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            float sum = 0.0f;
            if (i < R) {
#pragma unroll
                for (int q = 0; q < Q; ++q) sum = fmaf(a[i % R][q], v[(i % R) / N][q], sum);
            }
            sums[i] = sum;
        }
        av += transposed(sums, lane);
#endif
        float alpha = alpha0, beta = beta0, w = 0.0f;
#if SOLVER == GRADIENT
#if OWN_STEPS
        const float step_size = base / N < clients ? own_steps[g * G + base / N] : 0.0f;
#else
        const float step_size = inner;
#endif
        const float kept = 1.0f - step_size * r;
        float kw = 0.0f;
        for (int step = 0; step < steps; ++step) {
            const float eta = fmaf(alpha, av, fmaf(beta, ax, kw + offset));
            w = kept * w - step_size * s * (weight * slope(eta, target));
            alpha = kept * alpha + step_size * pull;
            beta = kept * beta;
            kw = product(K, w, row, base);
        }
        const float slopes = weight * slope(fmaf(alpha, av, fmaf(beta, ax, kw + offset)), target);
        // the gradient that is left is lead·v + rest·x + Aᵀtau
        const float lead = r * alpha - pull;
        const float rest = r * beta;
        const float tau = r * w + s * slopes;
#else
        // u = v/r + κAᵀμ with κ = s/r, where μ = -φ'(Au): Newton's method on these N equations
        const float kappa = s / r;
        const float eta0 = av / r + offset;
        float mu = -weight * slope(ax + offset, target);
        float km = kappa * product(K, mu, row, base);
#if SOLVER == QUADRATIC
        {
            const float missing = -(weight * slope(eta0 + km, target) + mu);
            mu += solve(K, kappa * weight, missing, row, base);
            km = kappa * product(K, mu, row, base);
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
            const float kd = kappa * product(K, delta, row, base);
            const float down = -over_rows(missing * kd, row, base);
            float t = 1.0f;
            float found = psi;
            // where the Hessian changes by less than e, Newton's whole step is good
            if (STEADY && __all_sync(ALL, fabsf(kd) <= 1.0f)) {
                mu += delta;
                km += kd;
                known = false;
                // what is left is of the order of φ''·kd², which float32 does not see
                if (__all_sync(ALL, fabsf(kd) <= 3e-4f)) break;
                continue;
            }
            if (!known) {
                psi = over_rows(weight * value(eta, target) + 0.5f * mu * km, row, base);
                known = true;
            }
            for (int half = 0; half < 30; ++half) {
                const float k_there = km + t * kd;
                const float m_there = mu + t * delta;
                const float term = weight * value(eta0 + k_there, target) + 0.5f * m_there * k_there;
                found = over_rows(term, row, base);
                const bool refused = !(found <= psi + 1e-4f * t * down + 1e-6f * fabsf(psi));
                if (!__any_sync(ALL, refused && active)) break;
                if (refused) t *= 0.5f;
            }
            mu = fmaf(t, delta, mu);
            km = fmaf(t, kd, km);
            psi = found;
        }
#endif
        alpha = 1.0f / r;
        beta = 0.0f;
        w = kappa * mu;
        // the gradient that is left is Aᵀtau, whose square is tauᵀK tau
        const float tau = s * (mu + weight * slope(eta0 + km, target));
        largest = fmaxf(largest, over_rows(tau * product(K, tau, row, base), row, base));
#endif
#pragma unroll
        for (int h = 0; h < G; ++h) {
            const float al = __shfl_sync(ALL, alpha, h * N);
            const float be = __shfl_sync(ALL, beta, h * N);
            float away[Q];  // u - x
#pragma unroll
            for (int q = 0; q < Q; ++q) away[q] = al * v[h][q] + (al + be - 1.0f) * xs[q];
#if SOLVER == GRADIENT
            const float le = __shfl_sync(ALL, lead, h * N);
            const float re = __shfl_sync(ALL, rest, h * N);
            float residual[Q];
#pragma unroll
            for (int q = 0; q < Q; ++q) residual[q] = le * v[h][q] + (le + re) * xs[q];
#endif
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const float wi = __shfl_sync(ALL, w, h * N + i);
#pragma unroll
                for (int q = 0; q < Q; ++q) away[q] = fmaf(a[h * N + i][q], wi, away[q]);
#if SOLVER == GRADIENT
                const float ti = __shfl_sync(ALL, tau, h * N + i);
#pragma unroll
                for (int q = 0; q < Q; ++q) residual[q] = fmaf(a[h * N + i][q], ti, residual[q]);
#endif
            }
            if (h >= clients) continue;
#if SOLVER == GRADIENT
            float missed = 0.0f;
#pragma unroll
            for (int q = 0; q < Q; ++q) missed = fmaf(residual[q], residual[q], missed);
            largest = fmaxf(largest, over_lanes(missed));
#endif
            float moved = 0.0f;
            float answer[Q];
#pragma unroll
            for (int q = 0; q < Q; ++q) {
#if REFLECT
                answer[q] = xs[q] + (2.0f * away[q] + side * v[h][q]);
#else
                answer[q] = xs[q] + away[q];
#endif
                total[q] += (double)answer[q];
                moved = fmaf(away[q], away[q], moved);
            }
            store(answer, out + (g * G + h) * D, lane);
            square += (double)moved;
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
        mine[D + 2] = sqrt((double)largest);
        mine[D + 3] = margin > 0.0f ? 1.0 : -1.0;
    }
}

// The warps' numbers in a fixed order: the D means of the answers, then √Σ‖u - x‖², Σφ(Ax), the
// largest gradient that is left, and the sign of the least margin.
extern "C" __global__ void gather(const double* __restrict__ partial, int warps, double m,
                                  double* __restrict__ mean, double* __restrict__ numbers) {
    __shared__ double found[256];
    const int i = blockIdx.x;
    const int me = threadIdx.x;
    const bool summed = i < D + 2;
    const bool largest = i == D + 2;
    double mine = summed || largest ? 0.0 : 1.0;
    for (int warp = me; warp < warps; warp += 256) {
        const double v = partial[(long long)warp * (D + 4) + i];
        mine = summed ? mine + v : (largest ? fmax(mine, v) : fmin(mine, v));
    }
    found[me] = mine;
    __syncthreads();
    for (int h = 128; h > 0; h /= 2) {
        if (me < h) {
            const double v = found[me + h];
            found[me] = summed ? found[me] + v
                               : (largest ? fmax(found[me], v) : fmin(found[me], v));
        }
        __syncthreads();
    }
    if (me > 0) return;
    if (i < D) mean[i] = found[0] / m;
    else numbers[i - D] = i == D ? sqrt(found[0]) : found[0];
}

// The diagonals of each client's K, (m, N, N), as (groups, HALF, 32): lanes read theirs without gaps.
extern "C" __global__ void lay_out(const float* __restrict__ K, float* __restrict__ out,
                                   long long m) {
    const long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    const int lane = at % 32;
    const int k = at / 32 % HALF;
    const long long g = at / 32 / HALF;
    if (g >= (m + G - 1) / G) return;
    const long long client = g * G + lane / N;
    const int row = lane % N;
    const bool used = lane < R && client < m;
    out[at] = used ? K[(client * N + row) * N + (row + k) % N] : 0.0f;
}
