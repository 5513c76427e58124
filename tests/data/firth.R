# R's figures of the models of tests/test_firth.py:
#   Rscript tests/data/firth.R > tests/data/firth.json
# Coefficients and the standard errors by the information are brglm2's (type "AS_mean"). Those by the
# augmented information, and the penalised likelihood, are what logistf(pl = FALSE) reports since
# 1.24.1; they follow from brglm2's fit by the formulas below. Where logistf is installed, its own
# figures have to agree.
library(jsonlite)
library(brglm2)
cars <- read.csv("tests/data/mtcars.csv")
cars$efficient <- as.numeric(cars$mpg > 20)
cars$strong <- as.numeric(cars$hp > 150)
cars$times <- 1 + (seq_len(nrow(cars)) - 1) %% 3
cars$shift <- 0.1 * cars$qsec - 1

penalised <- function(X, y, w, o, b) {
  p <- plogis(drop(X %*% b) + o)
  sum(w * dbinom(y, 1, p, log = TRUE)) + determinant(crossprod(X * sqrt(w * p * (1 - p))))$modulus[1] / 2
}

fit <- function(formula, weights = rep(1, nrow(cars)), offset = rep(0, nrow(cars))) {
  cars$w <- weights
  cars$o <- offset
  m <- glm(formula, binomial, cars, weights = w, offset = o,
           method = "brglmFit", type = "AS_mean", epsilon = 1e-14, maxit = 2000)
  X <- model.matrix(m)
  p <- fitted(m)
  W <- weights * p * (1 - p)
  h <- W * rowSums((X %*% solve(crossprod(X * sqrt(W)))) * X)
  y <- m$y
  stopifnot(max(abs(crossprod(X, weights * (y - p) + h * (0.5 - p)))) < 1e-9)
  null <- if (attr(terms(formula), "intercept")) {
    optimize(function(a) penalised(X, y, weights, offset, c(a, rep(0, ncol(X) - 1))), c(-20, 20),
             maximum = TRUE, tol = 1e-10)$objective
  } else penalised(X, y, weights, offset, rep(0, ncol(X)))
  found <- list(
    coef = coef(m), se = sqrt(diag(solve(crossprod(X * sqrt((weights + h) * p * (1 - p)))))),
    information_se = sqrt(diag(vcov(m))), log_likelihood = sum(weights * dbinom(y, 1, p, log = TRUE)),
    penalised = penalised(X, y, weights, offset, coef(m)), null = null)
  if (requireNamespace("logistf", quietly = TRUE)) {
    theirs <- logistf::logistf(formula, cars, pl = FALSE, weights = w, offset = o,
      control = logistf::logistf.control(maxit = 1000, xconv = 1e-12, gconv = 1e-10, lconv = 1e-12))
    stopifnot(all.equal(unname(coef(theirs)), unname(found$coef), tolerance = 1e-7),
              all.equal(sqrt(diag(theirs$var)), unname(found$se), tolerance = 1e-7),
              all.equal(unname(theirs$loglik["full"]), found$penalised, tolerance = 1e-8))
  }
  found[1:3] <- lapply(found[1:3], function(v) as.list(setNames(v, sub("(Intercept)", "Intercept", names(v), fixed = TRUE))))
  found
}

results <- list(
  separable = fit(efficient ~ wt + hp),
  overlapping = fit(strong ~ wt + mpg),
  weights = fit(strong ~ wt + mpg, weights = cars$times),
  offset = fit(strong ~ wt, offset = cars$shift),
  "no intercept" = fit(strong ~ 0 + wt + mpg))
cat(toJSON(results, digits = NA, auto_unbox = TRUE, pretty = TRUE), "\n")
