# R's figures of the models of tests/test_r_glm.py:
#   Rscript tests/data/r_glm.R > tests/data/r_glm.json
library(jsonlite)
files <- sort(Sys.glob("examples/randhie/*.csv"))
rows <- do.call(rbind, lapply(seq_along(files), function(j) cbind(read.csv(files[j]), site = j)))
rows <- rows[rows$year == 1, ]
rows$visited <- as.numeric(rows$mdvis > 0)
rows$shift <- 0.1 * rows$logc - 0.05 * rows$physlm
rows$weight <- 0.5 + rows$plan / 19
rows$times <- 1 + rows$plan %% 3
users <- rows[rows$mdvis > 0, ]
grouped <- aggregate(cbind(visited, trials = 1) ~ site + health + female, rows, sum)
grouped$failures <- grouped$trials - grouped$visited
grouped$share <- grouped$visited / grouped$trials
grouped$shift <- 0.1 * grouped$site
cars <- read.csv("tests/data/mtcars.csv")

control <- glm.control(epsilon = 1e-15, maxit = 100)
fit <- function(formula, family, data, ...) {
  m <- eval(substitute(glm(formula, family, data, control = control, ...)))
  s <- summary(m)
  table <- s$coefficients
  gaussian_or_gamma <- family$family %in% c("gaussian", "Gamma")
  q <- if (gaussian_or_gamma) qt(0.975, m$df.residual) else qnorm(0.975)
  ll0 <- as.numeric(logLik(m)) - (m$null.deviance - m$deviance) / 2
  found <- list(
    coef = table[, 1], se = table[, 2], z = table[, 3], p = table[, 4],
    lower = table[, 1] - q * table[, 2], upper = table[, 1] + q * table[, 2],
    n = nrow(data), dispersion = s$dispersion, deviance = m$deviance, df_residual = m$df.residual,
    null_deviance = m$null.deviance, df_null = m$df.null,
    log_likelihood = as.numeric(logLik(m)), aic = AIC(m))
  if (family$family == "gaussian") {
    l <- eval(substitute(lm(formula, data, ...)))
    stopifnot(abs(AIC(l) - found$aic) < 1e-6)
    # as summary.lm does since R 4.3: an offset is no part of what the model explains
    explained <- l$fitted.values - (if (is.null(l$offset)) 0 else l$offset)
    w <- if (is.null(l$weights)) rep(1, nrow(data)) else l$weights
    centre <- if (attr(l$terms, "intercept")) sum(w * explained) / sum(w) else 0
    mss <- sum(w * (explained - centre)^2)
    rss <- sum(w * l$residuals^2)
    df <- l$rank - attr(l$terms, "intercept")
    if (is.null(l$offset)) stopifnot(abs(summary(l)$r.squared - mss / (mss + rss)) < 1e-12)
    found$r_squared <- mss / (mss + rss)
    f <- mss / df / (rss / l$df.residual)
    found$f_test <- list(value = f, df_model = df, df_residual = l$df.residual,
                         p = pf(f, df, l$df.residual, lower.tail = FALSE))
  } else if (family$family == "Gamma") {
    found$r_squared <- 1 - m$deviance / m$null.deviance
  } else {
    found$r_squared <- 1 - found$log_likelihood / ll0
  }
  terms <- sub("(Intercept)", "Intercept", rownames(table), fixed = TRUE)
  found[c("coef", "se", "z", "p", "lower", "upper")] <- lapply(
    found[c("coef", "se", "z", "p", "lower", "upper")],
    function(values) as.list(setNames(values, terms)))
  found
}
log_gamma <- Gamma(link = "log")
cases <- list(
  "gaussian" = fit(mdvis ~ logc + physlm + female, gaussian(), rows),
  "gaussian, weights" = fit(mdvis ~ logc + physlm, gaussian(), rows, weights = weight),
  "gaussian, weights and offset" =
    fit(mdvis ~ logc + physlm, gaussian(), rows, weights = weight, offset = shift),
  "gaussian, no intercept" = fit(mdvis ~ logc + physlm - 1, gaussian(), rows),
  "gaussian, no intercept, offset" =
    fit(mdvis ~ logc + physlm - 1, gaussian(), rows, offset = shift),
  "gaussian, cars" = fit(mpg ~ wt + hp, gaussian(), cars),
  "gaussian, cars, weights" = fit(mpg ~ wt + hp, gaussian(), cars, weights = qsec),
  "gamma" = fit(mdvis ~ logc + physlm + female, log_gamma, users),
  "gamma, weights" = fit(mdvis ~ logc + physlm, log_gamma, users, weights = weight),
  "gamma, weights and offset" =
    fit(mdvis ~ logc + physlm, log_gamma, users, weights = weight, offset = shift),
  "gamma, no intercept, offset" = fit(mdvis ~ logc - 1, log_gamma, users, offset = shift),
  "gamma, cars" = fit(mpg ~ wt + hp, log_gamma, cars),
  "gamma, cars, fewer" = fit(mpg ~ wt, log_gamma, cars),
  "poisson" = fit(mdvis ~ logc + physlm + female, poisson(), rows),
  "poisson, weights" = fit(mdvis ~ logc + physlm, poisson(), rows, weights = weight),
  "poisson, weights and offset" =
    fit(mdvis ~ logc + physlm, poisson(), rows, weights = weight, offset = shift),
  "poisson, no intercept, offset" =
    fit(mdvis ~ logc + physlm - 1, poisson(), rows, offset = shift),
  "binomial" = fit(visited ~ logc + physlm + female, binomial(), rows),
  "binomial, weights" = fit(visited ~ logc + physlm, binomial(), rows, weights = times),
  "binomial, offset" = fit(visited ~ logc + physlm, binomial(), rows, offset = shift),
  "binomial, no intercept, offset" =
    fit(visited ~ logc + physlm - 1, binomial(), rows, offset = shift),
  "binomial, cbind" = fit(cbind(visited, failures) ~ female + site, binomial(), grouped),
  "binomial, cbind, offset" =
    fit(cbind(visited, failures) ~ female, binomial(), grouped, offset = shift),
  "binomial, cbind, no intercept" =
    fit(cbind(visited, failures) ~ female + site - 1, binomial(), grouped),
  "binomial, share of trials" = fit(share ~ female + site, binomial(), grouped, weights = trials)
)
m <- function(formula, ...) eval(substitute(
  nnet::multinom(formula, rows, trace = FALSE, maxit = 2000, reltol = 1e-15, abstol = 1e-12, ...)))
many <- function(full, null, n) list(
  deviance = full$deviance, null_deviance = null$deviance, log_likelihood = -full$deviance / 2,
  aic = full$AIC, r_squared = 1 - full$deviance / null$deviance, n = n)
cases[["multinomial"]] <- many(m(health ~ logc + physlm), m(health ~ 1), nrow(rows))
cases[["multinomial, weights"]] <- many(
  m(health ~ logc + physlm, weights = weight), m(health ~ 1, weights = weight), nrow(rows))
cat(toJSON(cases, digits = NA, auto_unbox = TRUE, pretty = TRUE), "\n")
